"""Sending a result piece by piece, for as long as somebody reads it."""

import asyncio
import contextlib
from typing import Any

from baobab.http.answer import Headers, Send
from baobab.tools.core.stream import Stream

_STALLED_SECONDS = 60.0
_HEADERS = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


async def send_stream(
    stream: Stream, status: int, headers: Headers, receive: Any, respond: Send, *, stalled: float = _STALLED_SECONDS
) -> None:
    """Returns when all has been sent, and as soon as the client is gone. The stream is closed in either case.

    stalled: seconds that a client may leave a piece unread.
    """
    headers += ((b"content-type", stream.media_type.encode()), *_HEADERS)
    loop = asyncio.get_running_loop()
    sending: float | None = None
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        """One timer for the whole stream: to set one for each piece costs a tenth of what the piece does."""
        nonlocal timer
        waited = 0.0 if sending is None else loop.time() - sending
        if deadline.expired():
            return
        if waited >= stalled:
            deadline.reschedule(loop.time())
        else:
            timer = loop.call_later(stalled - waited, look)

    watcher: asyncio.Task[None] | None = None
    # With the first piece and not before it: a generator that was never asked for one does not end what it began.
    head: Any = {"type": "http.response.start", "status": status, "headers": headers}
    try:
        async with contextlib.aclosing(stream.pieces) as pieces, asyncio.timeout(None) as deadline:
            watcher = asyncio.create_task(_end_with_client(receive, deadline))
            timer = loop.call_later(stalled, look)
            async for piece in pieces:
                sending = loop.time()
                if head is not None:
                    await respond(head)
                    head = None
                await respond({"type": "http.response.body", "body": piece, "more_body": True})
                sending = None
                if watcher.done():
                    return
            if head is not None:
                await respond(head)
            await respond({"type": "http.response.body", "body": b""})
            timer.cancel()
    except TimeoutError:
        # Gone, or reading nothing: there is nobody to tell.
        return
    finally:
        for ending in (timer, watcher):
            if ending is not None:
                ending.cancel()


async def _end_with_client(receive: Any, deadline: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time())
