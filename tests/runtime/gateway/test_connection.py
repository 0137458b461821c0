"""Connections to model servers: HTTP/1.1 as servers speak it, well and badly."""

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.runtime.gateway.connection import HttpAnswer, IncompleteAnswer, NoAnswer, RequestNotSent
from baobab.runtime.gateway.connection_pool import ConnectionPool, dial_host
from baobab.runtime.gateway.retry_timeouts import RetryTimeouts
from baobab.runtime.net.addresses import Target
from tests.certificates import create_certificate

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BODY = b"Hello, Ada. " * 40
WHOLE = b"HTTP/1.1 200 OK\r\nX-Kind: one\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nx-kind: one\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"c;ext=1\r\n%b\r\n%x\r\n%b\r\n0\r\nx-trailer: late\r\n\r\n" % (BODY[:12], len(BODY) - 12, BODY[12:])
)
TO_THE_END = b"HTTP/1.1 200 OK\r\nx-kind: one\r\n\r\n" + BODY
HINTED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + WHOLE


class FakeSite:
    """A server that does as it is told, and how many have connected to it."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._serving: set[asyncio.Task[None]] = set()
        self.connection_count = 0
        self.somebody_left = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        serving = asyncio.create_task(self._handle_connection(reader, writer))
        self._serving.add(serving)
        await asyncio.wait([serving])

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            self.somebody_left.set()

    async def close(self) -> None:
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


class Client:
    def __init__(self, site: FakeSite, connections: ConnectionPool, url: str) -> None:
        self.site = site
        self.connections = connections
        self.target = Target.parse(url, https_only=False)

    async def post(
        self, content: bytes = b"{}", silence: float = 60, between: float = 60, seconds: float = 60, **headers: str
    ) -> HttpAnswer:
        return await self.connections.post_request(
            self.target, headers, content, RetryTimeouts(silence, between, seconds)
        )

    async def read_answer(self, content: bytes = b"{}", **headers: str) -> bytes:
        answer = await self.connections.post_request(self.target, headers, content, RetryTimeouts(60, 60, 60))
        try:
            return b"".join([piece async for piece in answer])
        finally:
            answer.close()


@contextlib.asynccontextmanager
async def connect_client(
    serve: Serve, *, tls: ssl.SSLContext | None = None, server_side: ssl.SSLContext | None = None
) -> AsyncIterator[Client]:
    site = FakeSite(serve)
    server = await asyncio.start_server(site, "127.0.0.1", 0, ssl=server_side)
    connections = ConnectionPool(dial_host, tls=tls)
    try:
        yield Client(site, connections, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat?x=1")
    finally:
        await connections.close()
        server.close()
        await site.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of the next request; IncompleteReadError when there is none."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
    return head, await reader.readexactly(int(lengths[0].split()[1]))


def serve_pieces(*pieces: bytes, close: bool = False) -> Serve:
    """To each request the same, piece by piece."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                # A packet of its own.
                await asyncio.sleep(0)
            if close:
                writer.close()
                await writer.wait_closed()
                return

    return serve


@settings(max_examples=60)
@given(answer=st.sampled_from((WHOLE, CHUNKED, TO_THE_END, HINTED)), cuts=st.sets(st.integers(1, 500), max_size=12))
def test_an_answer_is_the_same_however_its_bytes_come(answer: bytes, cuts: set[int]) -> None:
    ends = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    pieces = [answer[start:end] for start, end in itertools.pairwise(ends)]

    async def fetch_answer() -> tuple[int, str | None, bytes]:
        async with connect_client(serve_pieces(*pieces, close=answer is TO_THE_END)) as client:
            response = await client.post()
            body = b"".join([piece async for piece in response])
            response.close()
            return response.status, response.headers.get("x-kind"), body

    assert asyncio.run(fetch_answer()) == (200, "one", BODY)


async def test_the_request_is_what_was_asked() -> None:
    requests = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(WHOLE)

    async with connect_client(serve) as client:
        await client.read_answer(b'{"a": 1}', authorization="Bearer key")
        authority = client.target.authority.encode()
    head = b"POST /v1/chat?x=1 HTTP/1.1\r\nhost: %b\r\ncontent-length: 8\r\nauthorization: Bearer key\r\n\r\n"
    assert requests == [(head % authority, b'{"a": 1}')]


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED, HINTED, b"HTTP/1.1 204 No Content\r\n\r\n"])
async def test_a_connection_is_used_again(answer: bytes) -> None:
    async with connect_client(serve_pieces(answer)) as client:
        for _ in range(3):
            await client.read_answer()
        assert client.site.connection_count == 1
        # Not by two at once.
        await asyncio.gather(client.read_answer(), client.read_answer())
        assert client.site.connection_count == 2


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE.replace(b"X-Kind: one", b"connection: close"),
        WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        WHOLE + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine",
        WHOLE + b"more",
    ],
)
async def test_a_connection_that_will_not_do_is_not_used_again(answer: bytes) -> None:
    async with connect_client(serve_pieces(answer)) as client:
        assert [await client.read_answer() for _ in range(3)] == [BODY] * 3
        assert client.site.connection_count == 3


async def test_what_comes_when_nothing_was_asked_ends_the_connection() -> None:
    may_speak = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(WHOLE)
        await may_speak.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine")
        await reader.read()

    async with connect_client(serve) as client:
        assert await client.read_answer() == BODY
        may_speak.set()
        await client.site.somebody_left.wait()
        assert await client.read_answer() == BODY
        assert client.site.connection_count == 2


async def test_an_answer_that_is_not_read_to_its_end_takes_its_connection_along() -> None:
    async with connect_client(serve_pieces(WHOLE[:-1])) as client:
        answer = await client.post()
        answer.close()
        await client.site.somebody_left.wait()


@pytest.mark.parametrize(
    "answer_bytes",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 199 Not Yet\r\ncontent-length: 4\r\n\r\nmine" + WHOLE,
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n4\r\nmine\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 2**18,
    ],
)
async def test_what_is_no_answer_is_told_as_none(answer_bytes: bytes) -> None:
    async with connect_client(serve_pieces(answer_bytes, close=True)) as client:
        with pytest.raises(NoAnswer):
            await client.post()


async def test_a_head_without_end_is_not_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            writer.write(b"a" * 2**14)
            await writer.drain()

    async with connect_client(serve) as client:
        with pytest.raises(NoAnswer):
            await client.post()


@pytest.mark.parametrize("answer_bytes", [WHOLE[:-1], CHUNKED[:-2], CHUNKED.replace(b"\r\nc;", b"\r\nzz")])
async def test_half_an_answer_is_told_as_half(answer_bytes: bytes) -> None:
    async with connect_client(serve_pieces(answer_bytes, close=True)) as client:
        with pytest.raises(IncompleteAnswer):
            await client.read_answer()


async def test_silence_is_heard_before_the_answer_and_within_it() -> None:
    async with connect_client(serve_pieces(b"", WHOLE[:100])) as client:
        answer = await client.post(between=0.05)
        with pytest.raises(TimeoutError):
            [piece async for piece in answer]
        answer.close()
    async with connect_client(serve_pieces(b"HTTP/1.1 100 Continue\r\n\r\n")) as client:
        with pytest.raises(TimeoutError):
            await client.post(silence=0.05)


async def test_an_answer_that_goes_on_for_ever_ends_in_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with connect_client(serve) as client:
        answer = await client.post(seconds=0.2)
        with pytest.raises(TimeoutError):
            [piece async for piece in answer]
        answer.close()


async def test_a_long_request_arrives_whole() -> None:
    content = bytes(range(256)) * 2**15
    contents = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            contents.append((await read_request(reader))[1])
            writer.write(WHOLE)

    async with connect_client(serve) as client:
        assert await client.read_answer(content) == BODY
        assert await client.read_answer() == BODY
        assert client.site.connection_count == 1
    assert contents == [content, b"{}"]


async def test_who_is_refused_early_sends_no_more() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WHOLE.replace(b"200 OK", b"413 Too Large"))
        # Until the other side leaves, with the rest unsent.
        await asyncio.Event().wait()

    async with connect_client(serve) as client:
        answer = await client.post(b"x" * 2**26)
        assert answer.status == 413
        assert b"".join([piece async for piece in answer]) == BODY
        answer.close()
        assert await client.post() is not None
        assert client.site.connection_count == 2


async def test_who_does_not_read_lets_the_server_wait() -> None:
    sent_size = 0
    more = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_size
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % 2**26)
        while sent_size < 2**26:
            writer.write(b"x" * 2**16)
            sent_size += 2**16
            await writer.drain()
            more.set()
        await reader.read()

    async with connect_client(serve) as client:
        answer = await client.post()
        with contextlib.suppress(TimeoutError):
            while sent_size < 2**26:
                more.clear()
                async with asyncio.timeout(0.3):
                    await more.wait()
        assert sent_size < 2**25
        assert sum([len(piece) async for piece in answer]) == 2**26
        answer.close()


@pytest.mark.parametrize("value", ["a\r\nx-admin: yes", "a\nb", "a\0b", "\N{SNOWMAN}"])
async def test_a_key_with_a_line_in_it_is_not_sent(value: str) -> None:
    async with connect_client(serve_pieces(WHOLE)) as client:
        with pytest.raises(RequestNotSent):
            await client.post(authorization=value)
        assert client.site.connection_count == 0


async def test_who_is_cancelled_leaves_nothing_open() -> None:
    has_asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        has_asked.set()
        await reader.read()

    async with connect_client(serve) as client:
        asking = asyncio.create_task(client.post())
        await has_asked.wait()
        asking.cancel()
        await client.site.somebody_left.wait()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_nobody_there_is_told_as_such() -> None:
    async with connect_client(serve_pieces(WHOLE)) as client:
        pass
    with pytest.raises(ConnectionRefusedError):
        await ConnectionPool(dial_host).post_request(client.target, {}, b"{}", RetryTimeouts(1, 1, 1))


async def test_tls_verifies_whom_it_talks_to(tmp_path: Path) -> None:
    certificate_file, key_file = create_certificate("localhost", tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate_file, key_file)
    trusting = ssl.create_default_context(cafile=str(certificate_file))
    known_host, strange_host = ("localhost", trusting, True), ("127.0.0.1", trusting, False)
    for host, tls, is_trusted in (known_host, strange_host, ("localhost", None, False)):
        async with connect_client(serve_pieces(WHOLE), tls=tls, server_side=server_side) as client:
            client.target = replace(client.target, scheme="https", host=host)
            if is_trusted:
                assert await client.read_answer(b"x" * 2**20) == BODY
            else:
                with pytest.raises(ssl.SSLError):
                    await client.read_answer()
