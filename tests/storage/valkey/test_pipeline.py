"""Commands of one turn as one write, and what callers hear when the server is slow, gone or back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.library import Library
from baobab.storage.valkey.pipeline import Pipeline
from tests.servers import ValkeyServer, start_valkey


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with start_valkey() as running:
        yield running


@pytest.fixture
async def pipeline(server: ValkeyServer) -> AsyncIterator[Pipeline]:
    created_pipeline = Pipeline(server.url)
    await created_pipeline.open()
    yield created_pipeline
    await created_pipeline.close()


class FakeServer:
    """Answers +PONG to its first read and `reply` to every later one; says what it read."""

    def __init__(self, reply: bytes = b"") -> None:
        self.reply = reply
        self.reads: list[bytes] = []
        self.url = ""

    async def __aenter__(self) -> FakeServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"+PONG\r\n")
        while read := await reader.read(65536):
            self.reads.append(read)
            writer.write(self.reply)
        writer.close()


async def wait_until_answering(pipeline: Pipeline) -> object:
    """Until it is answered again."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return await pipeline.send("PING")
        except ValkeyUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


async def test_each_reply_reaches_whoever_asked(pipeline: Pipeline) -> None:
    async def caller(number: int) -> None:
        for turn in range(50):
            assert await pipeline.send("ECHO", f"{number}:{turn}") == f"{number}:{turn}".encode()

    await asyncio.gather(*(caller(number) for number in range(64)))


async def test_commands_of_one_turn_are_one_write() -> None:
    async with FakeServer(b"+OK\r\n" * 3) as server:
        pipeline = Pipeline(server.url)
        await pipeline.open()
        await asyncio.gather(*(pipeline.send("SET", key, b"1") for key in "abc"))
        assert len(server.reads) == 1
        server.reply = b"+PONG\r\n"
        await pipeline.close()


async def test_values_of_any_bytes_and_sizes_come_back(pipeline: Pipeline) -> None:
    for value in (b"", b"\r\n\0\xff", b"x" * 5_000_000):
        await pipeline.send("SET", "key", value)
        assert await pipeline.send("GET", "key") == value
    assert await pipeline.send("GET", "none") is None
    assert await pipeline.send("INCRBY", "n", -(2**63)) == -(2**63)


async def test_an_error_reply_is_its_own_callers_alone(pipeline: Pipeline) -> None:
    calls = [pipeline.send("NOSUCH"), pipeline.send("PING")]
    wrong, right = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(wrong, ValkeyUnavailable)
    assert "unknown command" in wrong.reason
    assert right == b"PONG"


async def test_a_caller_that_goes_away_leaves_the_others_their_replies(pipeline: Pipeline) -> None:
    async def ask(number: int) -> bytes:
        answer: bytes = await pipeline.send("ECHO", str(number))
        return answer

    tasks = [asyncio.ensure_future(ask(number)) for number in range(30)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for n, result in enumerate(results) if n % 3] == [b"%d" % n for n in range(30) if n % 3]


async def test_more_than_the_queue_holds_is_refused(server: ValkeyServer) -> None:
    pipeline = Pipeline(server.url, queue_limit=10)
    await pipeline.open()
    accepted_commands = [pipeline.send("PING") for _ in range(10)]
    with pytest.raises(ValkeyUnavailable, match="too many"):
        pipeline.send("PING")
    assert await asyncio.gather(*accepted_commands) == [b"PONG"] * 10
    await pipeline.send("PING")
    await pipeline.close()


async def test_a_server_that_stops_answering_is_given_up_in_time() -> None:
    async with FakeServer() as server:
        pipeline = Pipeline(server.url, timeout=0.2)
        await pipeline.open()
        started_at = time.monotonic()
        first = pipeline.send("PING")
        await asyncio.sleep(0.1)
        second = pipeline.send("PING")
        for late in (first, second):
            with pytest.raises(ValkeyUnavailable, match=r"within 0\.2 s"):
                await late
        assert 0.15 < time.monotonic() - started_at < 30
        await pipeline.close()


async def test_what_is_no_protocol_ends_the_connection() -> None:
    async with FakeServer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        pipeline = Pipeline(server.url)
        await pipeline.open()
        with pytest.raises(ValkeyUnavailable, match="unreadable"):
            await pipeline.send("PING")
        await pipeline.close()


async def test_open_without_a_server_fails_and_goes_on_trying(server: ValkeyServer) -> None:
    server.stop()
    pipeline = Pipeline(server.url)
    with pytest.raises(ValkeyUnavailable):
        await pipeline.open()
    with pytest.raises(ValkeyUnavailable):
        pipeline.send("PING")
    server.start()
    await wait_until_answering(pipeline)
    await pipeline.close()


async def test_an_address_that_cannot_be_fails_loudly() -> None:
    pipeline = Pipeline(f"redis://{'a' * 64}/0")
    with pytest.raises(UnicodeError):
        await pipeline.open()
    await pipeline.close()


async def test_a_connection_that_the_server_drops_is_made_again_unnoticed(
    pipeline: Pipeline, server: ValkeyServer
) -> None:
    for _ in range(5):
        other = Pipeline(server.url)
        await other.open()
        await other.send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await other.close()
        await asyncio.sleep(0.01)
        assert await pipeline.send("PING") == b"PONG"


async def test_close_waits_for_the_replies_to_what_was_sent(server: ValkeyServer) -> None:
    pipeline = Pipeline(server.url)
    await pipeline.open()
    futures = [pipeline.send("ECHO", str(number)) for number in range(500)]
    await pipeline.close()
    assert [future.result() for future in futures] == [b"%d" % number for number in range(500)]
    with pytest.raises(ValkeyUnavailable, match="closed"):
        pipeline.send("PING")
    await pipeline.close()


def test_it_belongs_to_one_event_loop(server: ValkeyServer) -> None:
    pipeline = Pipeline(server.url)

    async def use() -> None:
        pipeline.send("PING")

    with asyncio.Runner() as runner:
        runner.run(pipeline.open())
        with pytest.raises(RuntimeError, match="event loop"), asyncio.Runner() as other:
            other.run(use())
        runner.run(pipeline.close())


async def test_a_password_and_a_database_are_told_to_the_server(server: ValkeyServer, pipeline: Pipeline) -> None:
    await pipeline.send("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all")
    address = server.url.removeprefix("redis://").removesuffix("/0")
    welcome = Pipeline(f"redis://ann:secret@{address}/3")
    await welcome.open()
    assert await welcome.send("ACL", "WHOAMI") == b"ann"
    assert b" db=3 " in await welcome.send("CLIENT", "INFO")
    await welcome.close()
    stranger = Pipeline(f"redis://ann:wrong@{address}/3")
    with pytest.raises(ValkeyUnavailable, match="WRONGPASS"):
        await stranger.open()
    await stranger.close()


async def test_a_function_that_the_server_has_forgotten_is_loaded_again(pipeline: Pipeline) -> None:
    code = 'redis.register_function(LIBRARY .. "_add", function(keys, args) return args[1] + args[2] end)'
    library = Library(pipeline, "test", code)
    assert await library.call("add", "key", 1, 2) == 3
    await pipeline.send("FUNCTION", "FLUSH")
    assert await asyncio.gather(*(library.call("add", "key", n, 1) for n in range(20))) == list(range(1, 21))
