"""Sends a result piece by piece, as long as the client reads it."""

import asyncio
import contextlib
from typing import Any

from baobab.http.answer import Headers, Send
from baobab.tools.core.stream import Stream, StreamEnded

_STALLED_SECONDS = 60.0
_UNBUFFERED = (b"x-accel-buffering", b"no")
_UNCACHED = (b"cache-control", b"no-store")


async def send_stream(
    stream: Stream,
    status: int,
    headers: Headers,
    receive: Any,
    respond: Send,
    *,
    stalled_seconds: float = _STALLED_SECONDS,
) -> None:
    """Returns when everything has been sent, or as soon as the client is gone. The stream is closed in either case.

    stalled_seconds: seconds that a client may leave a piece unread.
    """
    headers += ((b"content-type", stream.media_type.encode()), _UNBUFFERED)
    if all(name != b"cache-control" for name, _ in headers):
        headers.append(_UNCACHED)
    loop = asyncio.get_running_loop()
    sending: float | None = None
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        """Uses one timer for the whole stream, since one for each piece would add a tenth to its cost."""
        nonlocal timer
        waited_seconds = 0.0 if sending is None else loop.time() - sending
        if deadline.expired():
            return
        if waited_seconds >= stalled_seconds:
            deadline.reschedule(loop.time())
        else:
            timer = loop.call_later(stalled_seconds - waited_seconds, look)

    watcher: asyncio.Task[None] | None = None
    # Sent with the first piece and not before, because a generator that was never started would not clean up.
    head: Any = {"type": "http.response.start", "status": status, "headers": headers}
    try:
        async with contextlib.aclosing(stream.pieces) as pieces, asyncio.timeout(None) as deadline:
            watcher = asyncio.create_task(_end_with_client(receive, deadline))
            timer = loop.call_later(stalled_seconds, look)
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
    except StreamEnded:
        # Over HTTP, a stream itself says what it ends for.
        if head is not None:
            await respond(head)
        await respond({"type": "http.response.body", "body": b""})
    except TimeoutError:
        # The client is gone or reads nothing, so it cannot be told.
        return
    finally:
        for task in (timer, watcher):
            if task is not None:
                task.cancel()


async def wait_until_left(receive: Any) -> None:
    """Returns when the client of a request has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end_with_client(receive: Any, deadline: asyncio.Timeout) -> None:
    await wait_until_left(receive)
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time())
