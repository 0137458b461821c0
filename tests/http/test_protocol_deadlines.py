"""How long a client may take for each part of a request, over real sockets."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from baobab.http.protocol import GuardedProtocol
from tests.http.raw_server import (
    GET,
    QuickProtocol,
    echo,
    fail_if_called,
    on_both_loops,
    parse_refusal,
    read_body,
    respond,
    start_server,
)


async def measure_time(work: Coroutine[Any, Any, bytes]) -> tuple[bytes, float]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    return await work, loop.time() - start


@on_both_loops
async def test_a_head_that_does_not_end_is_refused() -> None:
    async with start_server(fail_if_called, QuickProtocol) as server:
        answer = await server.exchange(b"GET / HTTP/1.1\r\nHo")
    assert parse_refusal(answer) == (408, "HTTP_REQUEST_TIMEOUT")


@on_both_loops
async def test_dripping_does_not_buy_time() -> None:
    head, body = b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n"
    async with start_server(echo, QuickProtocol) as server:
        for start in (head, body):
            assert parse_refusal(await server.exchange(start, *[b"v"] * 20))[0] == 408


@on_both_loops
async def test_the_second_request_has_a_deadline_of_its_own() -> None:
    async with start_server(echo, QuickProtocol) as server:
        answer, seconds = await measure_time(server.exchange(GET, b"", GET, b"G", pause=0.1))
    assert answer.count(b" 200 OK") == 2
    assert parse_refusal(answer)[0] == 408
    assert seconds > 0.4


@on_both_loops
async def test_a_connection_without_a_request_is_closed_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async with start_server(fail_if_called, QuickProtocol) as server:
        for pieces in ([], [b"\r\n"] * 3):
            assert await server.exchange(*pieces) == b""
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@on_both_loops
async def test_a_body_that_does_not_end_is_refused() -> None:
    async with start_server(echo, QuickProtocol) as server:
        answer = await server.exchange(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"abc")
        assert parse_refusal(answer) == (408, "HTTP_REQUEST_TIMEOUT")


@on_both_loops
async def test_an_upload_may_take_long_as_long_as_it_moves() -> None:
    head = b"PUT /files/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 8\r\n\r\n"
    async with start_server(echo, QuickProtocol) as server:
        assert (await server.exchange(head, *[b"v"] * 8, pause=0.05)).endswith(b"/files/a vvvvvvvv;")
        assert parse_refusal(await server.exchange(head, b"vvv"))[0] == 408


@on_both_loops
async def test_the_time_in_which_the_application_does_not_read_is_not_the_clients() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.4)
        body = await read_body(receive)
        await respond(send, b"%d" % len(body or b""))

    size = 8_000_000
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    async with start_server(app, QuickProtocol) as server:
        assert (await server.exchange(head, b"v" * size)).endswith(b"\r\n%d" % size)


@on_both_loops
async def test_a_pause_that_we_made_in_between_does_not_count_either() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.4)
        await respond(send, b"%d" % len(await read_body(receive) or b""))

    class Scaled(GuardedProtocol):
        body_seconds = 0.6

    request = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 200002\r\n\r\nv"
    async with start_server(app, Scaled) as server:
        reader, writer = await server.connect()
        for piece, pause in ((request, 0.1), (b"v" * 200_000, 0.7), (b"v", 0)):
            writer.write(piece)
            await asyncio.sleep(pause)
        assert (await reader.read()).endswith(b"\r\n200002")
        writer.close()


@on_both_loops
async def test_a_client_told_to_wait_for_100_continue_is_not_late() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.4)
        await respond(send, await read_body(receive) or b"")

    async with start_server(app, QuickProtocol) as server:
        reader, writer = await server.connect()
        writer.write(
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"ok")
        assert (await reader.read()).endswith(b"\r\n\r\nok")
        writer.close()


@on_both_loops
async def test_a_slow_application_is_not_a_slow_client() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)
        await respond(send, b"slow but fine")

    async with start_server(app, QuickProtocol) as server:
        reader, writer = await server.connect()
        writer.write(GET)
        await asyncio.sleep(0.05)
        writer.write(b"\r\n")
        assert b"slow but fine" in await reader.read()
        writer.close()


@on_both_loops
async def test_an_early_answer_to_a_stalled_body_leaves_no_connection_behind() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"early")

    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"
    async with start_server(app, QuickProtocol) as server:
        for pieces in ([request, b"a"], [request, b"abc"]):
            assert (await server.exchange(*pieces)).endswith(b"early")


@on_both_loops
async def test_a_blank_line_does_not_keep_a_connection_open_for_ever() -> None:
    async with start_server(echo, QuickProtocol) as server:
        assert (await server.exchange(GET, b"\r\n")).endswith(b"/ ;")


@on_both_loops
async def test_the_keep_alive_timeout_stays_uvicorns() -> None:
    async with start_server(echo, QuickProtocol) as server:
        answer, seconds = await measure_time(server.exchange(GET))
    assert answer.endswith(b"/ ;")
    assert seconds > 0.35
