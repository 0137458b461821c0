"""The wall in front of the application, driven over real sockets: uvicorn on loopback, raw bytes in and out."""

import asyncio
import base64
import logging
import re
from contextvars import ContextVar
from typing import Any

import pytest

from baobab.http.protocol import FileProtocol, GuardedProtocol
from baobab.http.refusal_log import RefusalLog
from tests.http.raw_server import (
    GET,
    PATIENCE_SECONDS,
    QuickProtocol,
    echo,
    fail_if_called,
    on_both_loops,
    parse_refusal,
    parse_refusals,
    read_body,
    respond,
    start_server,
)

# -- size -------------------------------------------------------------------------------------------------------------


def header_lines(count: int, size: int = 1) -> bytes:
    return b"".join(b"X-%d: %b\r\n" % (number, b"v" * size) for number in range(count))


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\n" + header_lines(100) + b"\r\n"], id="101 lines at once"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\n", header_lines(102)], id="102 lines and no end"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\n" + header_lines(33, 2048) + b"\r\n"], id="66 KiB in 33 lines"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\nA: ", *[b"v" * 20_000] * 4], id="one line without an end"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"v" * 70_000 + b"\r\n\r\n"], id="one line of 70 KB"),
    ],
)
@on_both_loops
async def test_a_head_over_the_limit_is_refused(pieces: list[bytes]) -> None:
    async with start_server(fail_if_called) as server:
        assert parse_refusal(await server.exchange(*pieces)) == (431, "HTTP_HEADERS_TOO_LARGE")


@pytest.mark.parametrize("pieces", [[b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"], [b"GET /%b"]], ids=["whole", "endless"])
@on_both_loops
async def test_a_target_over_the_limit_is_refused(pieces: list[bytes]) -> None:
    async with start_server(fail_if_called) as server:
        answer = await server.exchange(*[piece % (b"p" * 17_000) for piece in pieces])
        assert parse_refusal(answer) == (414, "HTTP_TARGET_TOO_LONG")


@on_both_loops
async def test_a_head_just_under_the_limits_passes() -> None:
    target = b"/" + b"p" * 16_000
    head = b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" % target + header_lines(90, 500) + b"\r\n"
    async with start_server(echo) as server:
        assert (await server.exchange(head)).endswith(target + b" ;")


@on_both_loops
async def test_many_small_pipelined_requests_are_not_taken_for_one_large_head() -> None:
    request = b"GET /%d HTTP/1.1\r\nHost: x\r\nPad: " + b"p" * 900 + b"\r\n\r\n"
    last = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    async with start_server(echo) as server:
        answer = await server.exchange(b"".join(request % n for n in range(100)) + last, b"\r\n")
    assert [b"/%d ;" % n in answer for n in range(100)] == [True] * 100
    assert answer.endswith(b"/last ;")


@on_both_loops
async def test_trailers_without_an_end_are_refused() -> None:
    head = b"PUT /files/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    async with start_server(echo) as server:
        assert parse_refusal(await server.exchange(head, *[b"T: " + b"t" * 9_000 + b"\r\n"] * 10))[0] == 431


# -- shape ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [b"", b"Host: x\r\nHost: x\r\n", b"Host: x\r\nhost: y\r\n"])
@on_both_loops
async def test_a_request_needs_exactly_one_host(headers: bytes) -> None:
    async with start_server(fail_if_called) as server:
        answer = await server.exchange(b"GET / HTTP/1.1\r\n" + headers + b"\r\n")
        assert parse_refusal(answer) == (400, "HTTP_HOST_REQUIRED")


@on_both_loops
async def test_http_1_0_may_leave_the_host_out_but_not_double_it() -> None:
    async with start_server(echo) as server:
        assert b" 200 OK" in await server.exchange(b"GET / HTTP/1.0\r\n\r\n")
        assert parse_refusal(await server.exchange(b"GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n"))[0] == 400


@pytest.mark.parametrize(
    ("target", "host", "is_served"),
    [
        (b"http://x/a?b=http://y/", b"x", True),
        (b"HTTP://X:80/", b"x", True),
        (b"https://x/", b"x:443", True),
        (b"http://x:8000/", b"x:8000", True),
        (b"/a?b=http://y/", b"x", True),
        (b"http://y/", b"x", False),
        (b"http://y?x", b"x", False),
        (b"http://x:8001/", b"x:8000", False),
        (b"http://x@y/", b"x", False),
        (b"http://y@x/", b"x", False),
    ],
)
@on_both_loops
async def test_a_target_that_names_a_host_names_that_of_the_header(target: bytes, host: bytes, is_served: bool) -> None:
    async with start_server(echo if is_served else fail_if_called) as server:
        request = b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
        answer = await server.exchange(request)
        if is_served:
            assert b" 200 OK" in answer
        else:
            assert parse_refusal(answer) == (400, "HTTP_TARGET_HOST")


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 3\r\n" + CHUNKED,
        CHUNKED + b"Content-Length: 3\r\n",
        b"Content-Length: 3\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: 3, 3\r\n",
        b"Content-Length: +3\r\n",
        CHUNKED + CHUNKED,
        b"Transfer-Encoding: gzip\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n",
        b"Connection: upgrade\r\nUpgrade: websocket\r\n" + CHUNKED,
    ],
)
@on_both_loops
async def test_a_body_of_uncertain_length_is_refused_before_the_application_runs(headers: bytes) -> None:
    async with start_server(fail_if_called) as server:
        assert parse_refusal(await server.exchange(b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n"))[0] == 400


@on_both_loops
async def test_chunks_in_http_1_0_are_refused() -> None:
    async with start_server(fail_if_called) as server:
        answer = await server.exchange(b"POST / HTTP/1.0\r\n" + CHUNKED + b"\r\n0\r\n\r\n")
        assert parse_refusal(answer) == (400, "HTTP_TRANSFER_CODING")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"nonsense\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT other:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00\r\n\r\n",
        b"GET /\xff\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
@on_both_loops
async def test_malformed_http_is_answered_in_the_same_shape_with_one_warning(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    class Logged(GuardedProtocol):
        refusals = RefusalLog()

    async with start_server(fail_if_called, Logged) as server:
        for _ in range(5):
            assert parse_refusal(await server.exchange(request_bytes))[0] == 400
    # Anybody can send such requests: one of many is written down.
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(record.levelname, record.exc_info) for record in warnings] == [("WARNING", None)]
    assert warnings[0].__dict__["request_id"]
    assert "\n" not in warnings[0].__dict__["path"]


@on_both_loops
async def test_a_broken_body_ends_the_request_for_the_application_too() -> None:
    outcome: list[bytes | None] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        outcome.append(await read_body(receive))
        await respond(send, b"too late")

    async with start_server(app) as server:
        answer = await server.exchange(b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n", b"zz\r\n")
        assert parse_refusal(answer) == (400, "HTTP_MALFORMED_REQUEST")
    assert outcome == [None]


@on_both_loops
async def test_trailers_do_not_join_the_headers() -> None:
    names: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        names.extend(name for name, _ in scope["headers"])
        await respond(send, b"done")

    body_with_trailers = b"1\r\na\r\n0\r\nHost: evil\r\nAuthorization: evil\r\n\r\n"
    async with start_server(app) as server:
        await server.exchange(
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + CHUNKED + b"\r\n", body_with_trailers
        )
    assert names == [b"host", b"connection", b"transfer-encoding"]


# -- what must keep working -------------------------------------------------------------------------------------------


async def answer_first_slowly(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/1":
        await asyncio.sleep(0.3)
    await echo(scope, receive, send)


@on_both_loops
async def test_pipelined_requests_are_answered_in_order() -> None:
    requests = [b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nb" % n for n in (1, 2, 3)]
    last = b"GET /4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with start_server(answer_first_slowly, QuickProtocol) as server:
        answer = await server.exchange(b"".join(requests) + last)
    assert [answer.index(b"/%d " % n) for n in (1, 2, 3, 4)] == sorted(answer.index(b"/%d " % n) for n in (1, 2, 3, 4))
    assert parse_refusals(answer) == []


@pytest.mark.parametrize(
    ("second", "status"),
    [
        pytest.param(b"nonsense\r\n\r\n", 400, id="malformed"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no host"),
        pytest.param(b"GET / HTTP/1.1\r\nHo", 408, id="half a head"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na", 408, id="half a body"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\nzz\r\n", 400, id="broken body"),
    ],
)
@on_both_loops
async def test_a_refusal_waits_for_the_answer_to_the_request_before_it(second: bytes, status: int) -> None:
    async with start_server(answer_first_slowly, QuickProtocol) as server:
        answer = await server.exchange(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" + second)
    assert b"/1 ;HTTP/1.1 %d " % status in answer
    assert parse_refusal(answer)[0] == status


@on_both_loops
async def test_a_refusal_arrives_although_the_client_is_still_sending() -> None:
    async with start_server(fail_if_called, QuickProtocol) as server:
        answer = await server.exchange(b"POST / HTTP/1.1\r\n\r\n" + b"x" * 300_000, b"x" * 300_000, b"x" * 300_000)
        assert parse_refusal(answer) == (400, "HTTP_HOST_REQUIRED")


@on_both_loops
async def test_a_lost_connection_ends_the_running_request_although_another_is_queued() -> None:
    end_event = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        message = await receive()
        if message["type"] == "http.disconnect":
            end_event.set()

    async with start_server(app, QuickProtocol) as server:
        _, writer = await server.connect()
        writer.write(GET + GET)
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.wait_for(end_event.wait(), 2)


AT_ONCE: ContextVar[str] = ContextVar("at_once", default="")


async def answer_at_once(scope: Any, receive: Any, send: Any) -> None:
    """Answers without waiting for anything, unless the path says so. Each request sees a context of its own."""
    left_by_another, task = AT_ONCE.get(), asyncio.current_task()
    AT_ONCE.set(scope["path"])
    async with asyncio.timeout(PATIENCE_SECONDS):
        if scope["path"].startswith("/wait"):
            await asyncio.sleep(0.01)
    assert task is not None
    assert asyncio.current_task() is task
    if scope["path"] == "/broken":
        raise ValueError(scope["path"])
    await respond(send, f"{left_by_another}{AT_ONCE.get()};".encode())


@on_both_loops
async def test_a_request_has_a_task_and_a_context_of_its_own_whether_it_waits_or_not() -> None:
    requests = [b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % name for name in (b"a", b"wait1", b"b", b"wait2")]
    last = b"GET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with start_server(answer_at_once) as server:
        one_by_one = await server.exchange(*requests, last, pause=0.05)
        pipelined_answers = await server.exchange(b"".join(requests) + last)
    in_order = [b"/a;", b"/wait1;", b"/b;", b"/wait2;", b"/c;"]
    assert re.findall(rb"\r\n\r\n(.*?;)", one_by_one) == in_order
    # The task of a queued request is made by the one before it, and begins with what that one has set.
    assert re.findall(rb"/\w+;", pipelined_answers) == in_order


@pytest.mark.parametrize(
    ("request_", "keeps_alive", "body"),
    [
        (b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", True, b"/a;"),
        (b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n", True, b""),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False, b"/a;"),
        (b"GET /a HTTP/1.0\r\nHost: x\r\n\r\n", False, b"/a;"),
    ],
    ids=["GET", "HEAD", "Connection: close", "HTTP/1.0"],
)
@on_both_loops
async def test_an_answer_at_once_keeps_the_connection_or_closes_it(
    request_: bytes, keeps_alive: bool, body: bytes
) -> None:
    async with start_server(answer_at_once) as server:
        head, _, rest = (await server.exchange(request_, request_)).partition(b"\r\n\r\n")
    assert b"content-length: 3" in head
    assert (b"connection: close" in head) is not keeps_alive
    assert rest.startswith(body + (b"HTTP/1.1 200 " if keeps_alive else b""))
    assert rest.count(b"HTTP/1.1 200 ") == keeps_alive


@on_both_loops
async def test_an_error_before_the_first_wait_fails_its_request_only(caplog: pytest.LogCaptureFixture) -> None:
    broken_request = b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n"
    async with start_server(answer_at_once) as server:
        answer = await server.exchange(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n" + broken_request)
        alone = await server.exchange(broken_request)
        after = await server.exchange(b"GET /a HTTP/1.0\r\nHost: x\r\n\r\n")
    assert b"/a;HTTP/1.1 500 " in answer
    assert alone.startswith(b"HTTP/1.1 500 ")
    assert after.endswith(b"/a;")
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ValueError, ValueError]


@on_both_loops
async def test_a_malformed_request_behind_one_that_is_answered_at_once_is_refused_after_it() -> None:
    async with start_server(answer_at_once) as server:
        answer = await server.exchange(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n")
    assert b"\r\n\r\n/a;HTTP/1.1 400 " in answer


@on_both_loops
async def test_a_body_that_comes_slowly_reaches_an_application_that_has_begun() -> None:
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
    async with start_server(echo) as server:
        assert (await server.exchange(head, b"ab", b"cd", pause=0.05)).endswith(b"/a abcd;")


@on_both_loops
async def test_a_client_that_leaves_in_the_middle_ends_a_request_that_waits_for_its_body() -> None:
    end_event = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert await read_body(receive) is None
        end_event.set()

    async with start_server(app) as server:
        _, writer = await server.connect()
        writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.wait_for(end_event.wait(), PATIENCE_SECONDS)


async def websocket_echo(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "websocket"
    await receive()
    await send({"type": "websocket.accept"})
    message = await receive()
    await send({"type": "websocket.send", "text": message["text"] + "!"})


@on_both_loops
async def test_a_websocket_is_handed_over_and_outlives_the_deadlines() -> None:
    key = base64.b64encode(b"0123456789abcdef")
    handshake = (
        b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    )
    async with start_server(websocket_echo, QuickProtocol) as server:
        reader, writer = await server.connect()
        writer.write(handshake + b"Sec-WebSocket-Key: " + key + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        await asyncio.sleep(0.4)
        writer.write(b"\x81\x82\x00\x00\x00\x00hi")
        assert await reader.readexactly(5) == b"\x81\x03hi!"
        writer.close()


@on_both_loops
async def test_a_websocket_needs_exactly_one_host_too() -> None:
    async with start_server(fail_if_called, QuickProtocol) as server:
        answer = await server.exchange(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert parse_refusal(answer) == (400, "HTTP_HOST_REQUIRED")


@on_both_loops
async def test_an_upgrade_to_something_else_is_answered_as_a_plain_request() -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with start_server(echo, QuickProtocol) as server:
        assert b" 200 OK" in await server.exchange(upgrade)


@on_both_loops
async def test_shutdown_lets_running_requests_finish_and_drops_the_rest() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.3)
        await respond(send, b"finished")

    class Patient(GuardedProtocol):
        head_seconds = linger_seconds = 60.0

    broken_request = b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\nzz\r\n"
    async with start_server(app, Patient) as server:
        connections = [await server.connect() for _ in range(5)]
        requests = [GET, b"", b"GET / HT", b"nonsense\r\n\r\n", broken_request]
        for (_, writer), request in zip(connections, requests, strict=True):
            writer.write(request)
        await asyncio.sleep(0.1)
        stop_time = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - stop_time < Patient.head_seconds / 2
    finished_answer, *others = [await reader.read() for reader, _ in connections]
    assert finished_answer.endswith(b"finished")
    assert others[:2] == [b"", b""]
    assert [parse_refusal(other)[0] for other in others[2:]] == [400, 400]
    for _, writer in connections:
        writer.close()


@pytest.mark.parametrize(
    ("method", "path", "is_upload"),
    [
        ("PUT", "/storage/app_1a2b3c4d5e6f/content/0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", True),
        ("PATCH", "/storage/uploads/0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", True),
        ("PUT", f"/prefix/v1/app_1a2b3c4d5e6f/repo/blobs/{'0' * 64}/content", True),
        ("POST", "/storage/app_1a2b3c4d5e6f/upload", False),
        ("GET", "/storage/app_1a2b3c4d5e6f/content/0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", False),
        ("PUT", "/v1/app_1a2b3c4d5e6f/kv/storage/content/0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", False),
        ("PUT", "/v1/app_1a2b3c4d5e6f/kv/a", False),
    ],
)
def test_only_the_bytes_of_files_take_as_long_as_they_take(method: str, path: str, is_upload: bool) -> None:
    assert FileProtocol.is_upload(method, path.encode()) is is_upload
