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
from baobab.http.open_streams import close_code
from baobab.http.request import Request
from baobab.tools.core.errors import BaobabError, Internal
from baobab.tools.core.stream import Stream, StreamEnded

_FAILED, _ENDED = 1011, 1000
_STALLED_SECONDS = 60.0
_CLOSING_SECONDS = 5.0
_PROTOCOL = b"baobab"
_BEARER = b"bearer."

_log = logging.getLogger(__name__)


async def serve_socket(endpoint: Endpoint, request: Request, receive: Any, respond: Send, base_url: str) -> None:
    """Returns when everything has been sent, or as soon as the client is gone. The stream is closed in either case.

    A browser can send no header of its own, but protocols: one that begins with `bearer.` is its credential. In the
    address it would be in the logs of every proxy on the way.
    """
    await receive()
    protocols = [each.strip() for each in (request.header(b"sec-websocket-protocol") or b"").split(b",")]
    credential = next((each for each in protocols if each.startswith(_BEARER)), None)
    if credential is not None and request.authorization is None:
        request.authorization = b"Bearer " + credential.removeprefix(_BEARER)
    # A browser fails a connection for which it offered protocols and the server chose none.
    choice = {"subprotocol": _PROTOCOL.decode()} if _PROTOCOL in protocols else {}
    await respond({"type": "websocket.accept", **choice})
    async with AsyncExitStack() as stack:
        try:
            stream = await stack.enter_async_context(endpoint.open_stream(request, base_url))
        except BaobabError as error:
            payload = endpoint.tool.toolset.envelope.render(error, f"{base_url}/docs")
            await respond({"type": "websocket.send", "text": to_json(payload).decode()})
            code = _FAILED if isinstance(error, Internal) else close_code(error)
            await respond({"type": "websocket.close", "code": code})
            return
        except Exception:
            await respond({"type": "websocket.close", "code": _FAILED})
            raise
        await _serve_stream(stream, receive, respond)


async def _serve_stream(stream: Stream, receive: Any, respond: Send) -> None:
    receiving = asyncio.create_task(_read_messages(stream, receive))
    sending = asyncio.create_task(_send_pieces(stream, respond))
    try:
        await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            code, reason = (_FAILED, "") if sending.exception() else sending.result()
            async with asyncio.timeout(_CLOSING_SECONDS):
                await respond({"type": "websocket.close", "code": code} | ({"reason": reason} if reason else {}))
    except TimeoutError:
        # The client reads nothing, so it cannot be told.
        return
    finally:
        for task in (receiving, sending):
            task.cancel()
        await asyncio.gather(receiving, sending, return_exceptions=True)


async def _send_pieces(stream: Any, respond: Send) -> tuple[int, str]:
    """Sends the pieces, and returns the code and the reason with which to close the socket."""
    async with contextlib.aclosing(stream.pieces) as pieces:
        try:
            async for piece in pieces:
                if not piece:
                    continue
                async with asyncio.timeout(_STALLED_SECONDS):
                    await respond({"type": "websocket.send", "text": piece.decode()})
        except TimeoutError:
            return _ENDED, "the client reads nothing"
        except StreamEnded as end:
            return end.code, end.reason
        except Exception:
            _log.exception("a stream failed")
            raise
    return _ENDED, ""


async def _read_messages(stream: Stream, receive: Any) -> None:
    """Passes on the client's messages, one after the other, until it is gone."""
    while (message := await receive())["type"] != "websocket.disconnect":
        text = message.get("text")
        if stream.on_message is not None and text is not None:
            await stream.on_message(text)
