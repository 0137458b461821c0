"""Serves a stream over a WebSocket, each piece as a frame. Errors are sent after the handshake, because browsers hide
why one was refused.
"""

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack
from typing import Any

from pydantic_core import to_json

from baobab.http.answer import Send
from baobab.http.endpoint import Endpoint
from baobab.http.request import Request
from baobab.tools.core.errors import BaobabError, Internal
from baobab.tools.core.stream import Stream

_REFUSED, _FAILED, _ENDED = 1008, 1011, 1000
_STALLED_SECONDS = 60.0

_log = logging.getLogger(__name__)


async def serve_socket(endpoint: Endpoint, request: Request, receive: Any, respond: Send, base_url: str) -> None:
    """Returns when everything has been sent, or as soon as the client is gone. The stream is closed in either case."""
    await receive()
    await respond({"type": "websocket.accept"})
    async with AsyncExitStack() as stack:
        try:
            stream = await stack.enter_async_context(endpoint.open_stream(request, base_url))
        except BaobabError as error:
            payload = endpoint.tool.toolset.envelope.render(error, f"{base_url}/docs")
            await respond({"type": "websocket.send", "text": to_json(payload).decode()})
            await respond({"type": "websocket.close", "code": _REFUSED if error.status < Internal.status else _FAILED})
            return
        except Exception:
            await respond({"type": "websocket.close", "code": _FAILED})
            raise
        await _serve_stream(stream, receive, respond)


async def _serve_stream(stream: Stream, receive: Any, respond: Send) -> None:
    disconnected = asyncio.create_task(_wait_for_disconnect(receive))
    sending = asyncio.create_task(_send_pieces(stream, respond))
    try:
        await asyncio.wait((disconnected, sending), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            await respond({"type": "websocket.close", "code": _FAILED if sending.exception() else _ENDED})
    finally:
        for task in (disconnected, sending):
            task.cancel()
        await asyncio.gather(disconnected, sending, return_exceptions=True)


async def _send_pieces(stream: Any, respond: Send) -> None:
    async with contextlib.aclosing(stream.pieces) as pieces:
        try:
            async for piece in pieces:
                async with asyncio.timeout(_STALLED_SECONDS):
                    await respond({"type": "websocket.send", "text": piece.decode()})
        except TimeoutError:
            # The client reads nothing, so it cannot be told.
            return
        except Exception:
            _log.exception("a stream failed")
            raise


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass
