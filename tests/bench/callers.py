"""Callers of a server over keep-alive connections: each sends its next request when the last one is answered.

A protocol and not streams: what the callers themselves cost is taken from the server when the two share a machine.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple, cast


class Answer(NamedTuple):
    status: int
    body: bytes


Caller = Generator[bytes, Answer, None]
"""Yields requests, is sent the answer to each, and returns when it has no more to ask."""


async def run_callers(port: int, callers: Iterable[Caller], begin: Callable[[], None] = lambda: None) -> None:
    """Let all of them call until the last has returned; the first fault of one ends it.

    begin: called when all are connected and nothing is sent yet.
    """
    loop = asyncio.get_running_loop()
    connections: list[_Connection] = []
    try:
        for caller in callers:
            connection = _Connection(caller)
            await loop.create_connection(lambda protocol=connection: protocol, "127.0.0.1", port)  # type: ignore[misc]
            connections.append(connection)
        begin()
        for connection in connections:
            connection.start()
        await asyncio.gather(*(connection.outcome for connection in connections))
    finally:
        for connection in connections:
            connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self, caller: Caller) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._caller = caller
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    def start(self) -> None:
        self._advance(None)

    def close(self) -> None:
        # A fault of another may have left this one without an end.
        self.outcome.cancel()
        self._caller.close()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one by its methods only.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(RuntimeError(f"the server has closed the connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        answer = parse_answer(self._buffer)
        if answer is not None:
            self._buffer = b""
            self._advance(answer)

    def _advance(self, answer: Answer | None) -> None:
        if self.outcome.done():
            return
        assert self._transport is not None
        try:
            self._transport.write(next(self._caller) if answer is None else self._caller.send(answer))
        except StopIteration:
            self.outcome.set_result(None)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with an answer, who waits for the callers must hear
            self._fail(exc)

    def _fail(self, exc: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(exc)


def parse_answer(data: bytes) -> Answer | None:
    """One whole answer, its body of a known length or, as it came, in chunks; None while some of it is missing."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    status = int(head[9:12])
    head = head.lower()
    if b"transfer-encoding: chunked" in head:
        return Answer(status, body) if body.endswith(b"0\r\n\r\n") else None
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    return Answer(status, body) if len(body) >= length else None
