"""A server of uvicorn on loopback with our protocol, for tests that send and read raw bytes."""

import asyncio
import functools
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop

from baobab.http.protocol import GuardedProtocol

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """uvloop is what serves in production; asyncio is what serves where uvloop has no wheel."""

    @functools.wraps(test)
    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(asyncio.wait_for(test(**arguments), 10))

    signature = inspect.signature(test)
    extra = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
    factories = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]
    parametrized_test: Callable[..., None] = pytest.mark.parametrize("loop_factory", factories)(run)
    return parametrized_test


class QuickProtocol(GuardedProtocol):
    """The same wall with short times, so that tests need not wait."""

    head_seconds = 0.15
    body_seconds = 0.15
    upload_idle_seconds = 0.3
    linger_seconds = 0.3

    @staticmethod
    def is_upload(method: str, raw_path: bytes) -> bool:
        return method == "PUT" and raw_path.startswith(b"/files/")


PATIENCE_SECONDS = 30


class Server:
    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def exchange(self, *pieces: bytes, pause: float = 0.02) -> bytes:
        """Send the pieces one after the other and read until the server closes."""
        reader, writer = await self.connect()
        # Read from the first moment: what is written to a connection that the server has closed would break it.
        reading = asyncio.create_task(reader.read())
        for piece in pieces:
            if reading.done():
                break
            writer.write(piece)
            await asyncio.sleep(pause)
        # A connection that nobody closes fails the test here, and a loaded machine does not.
        answer = await asyncio.wait_for(reading, PATIENCE_SECONDS)
        writer.close()
        return answer


@asynccontextmanager
async def start_server(app: App, protocol: type[GuardedProtocol] = GuardedProtocol) -> AsyncIterator[Server]:
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http=protocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=0.4,  # type: ignore[arg-type]  # whole seconds are for people
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started and not task.done():
        await asyncio.sleep(0.005)
    try:
        yield Server(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, PATIENCE_SECONDS)


async def read_body(receive: Any) -> bytes | None:
    """The whole body, or None if the client went away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)


async def respond(send: Any, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the body."""
    body = await read_body(receive)
    if body is not None:
        await respond(send, b"%b %b;" % (scope["raw_path"], body))


async def fail_if_called(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the application was called")


def parse_refusals(answer: bytes) -> list[tuple[int, dict[str, str]]]:
    """The (status, error) of the one refusal in these bytes, after checking its shape."""
    refusals = []
    for part in re.split(rb"HTTP/1\.1 (?=\d{3} )", answer)[1:]:
        head, _, body = part.partition(b"\r\n\r\n")
        if not head.startswith(b"2"):
            assert b"\r\nconnection: close" in head
            assert b"\r\ncontent-type: application/json" in head
            assert b"\r\ncontent-length: %d\r\n" % len(body) in head
            error = json.loads(body)["error"]
            assert error.keys() == {"code", "message", "remediation"}
            assert all(error.values())
            refusals.append((int(head[:3]), error))
    return refusals


def parse_refusal(answer: bytes) -> tuple[int, str]:
    [(status, error)] = parse_refusals(answer)
    return status, error["code"]
