"""The guarded client: how large an answer may be, compressed or not, and how long it may take."""

import asyncio
import gzip
import zlib
from collections.abc import Sequence

import pytest

from baobab.runtime.net.egress import (
    Egress,
    EgressTimeout,
    EgressTooLarge,
    EgressUnavailable,
)
from tests.runtime.sites import Answer, close_after, http_response, local_egress, redirect_to, serving
from tests.servers import TIMEOUT_SECONDS


def encoded_response(encoding: str, body: bytes) -> bytes:
    return http_response("200 OK", f"Content-Encoding: {encoding}", body=body)


async def test_an_answer_of_exactly_the_limit_passes_and_one_more_byte_does_not() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await writer.drain()

    async def announce_too_much(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")

    answers: dict[str, Answer] = {
        "/fits": http_response("200 OK", body=b"x" * 1000),
        "/endless": endless,
        "/announced": announce_too_much,
    }
    async with serving(answers) as site, close_after(local_egress()) as egress:
        url = f"http://a.test:{site.port}"
        assert len((await egress.request("GET", url + "/fits", max_bytes=1000)).body) == 1000
        for path in ("/endless", "/announced"):
            with pytest.raises(EgressTooLarge) as error_info:
                await egress.request("GET", url + path, max_bytes=1000)
            assert error_info.value.details == {"max_bytes": 1000}


def unbounded_answer(encoding: str, body: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n\r\n".encode() + body)
        writer.close()

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(encoded_response("gzip", gzip.compress(bytes(50_000_000))), id="gzip"),
        pytest.param(encoded_response("deflate", zlib.compress(bytes(50_000_000))), id="deflate"),
        pytest.param(unbounded_answer("gzip", gzip.compress(b"") * 60_000), id="nothing, sixty thousand times"),
    ],
)
async def test_a_decompression_bomb_is_stopped_at_the_limit(answer: Answer) -> None:
    sizes = [0]

    async def collect(url: str) -> None:
        async with egress.stream("GET", url, max_bytes=1_000_000) as stream:
            async for piece in stream:
                sizes.append(len(piece))  # noqa: PERF401 -- the loop is to be left by an exception

    async with serving({"/": answer}) as site, close_after(local_egress()) as egress:
        with pytest.raises(EgressTooLarge):
            await collect(f"http://a.test:{site.port}/")
    assert sum(sizes) <= 1_000_000
    assert max(sizes) <= 64 * 1024


def deflate_raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


TEXT = b"text to compress " * 10_000


@pytest.mark.parametrize(
    "answer",
    [
        encoded_response("identity", TEXT),
        encoded_response("gzip", gzip.compress(TEXT)),
        encoded_response("X-GZip", gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
        encoded_response("deflate", zlib.compress(TEXT)),
        encoded_response("deflate", deflate_raw(TEXT)),
    ],
    ids=["plain", "gzip", "two gzip members", "deflate", "bare deflate"],
)
async def test_a_compressed_answer_is_decompressed(answer: bytes) -> None:
    async with serving({"/": answer}) as site, close_after(local_egress()) as egress:
        assert (await egress.request("GET", f"http://a.test:{site.port}/")).body == TEXT


@pytest.mark.parametrize(
    "answer",
    [
        encoded_response("gzip", b"not gzip"),
        encoded_response("gzip", gzip.compress(TEXT)[:-20]),
        encoded_response("br", b"x"),
    ],
    ids=["damaged", "cut short", "not asked for"],
)
async def test_an_answer_that_cannot_be_decompressed_is_an_error(answer: bytes) -> None:
    async with serving({"/": answer}) as site, close_after(local_egress()) as egress:
        with pytest.raises(EgressUnavailable):
            await egress.request("GET", f"http://a.test:{site.port}/")


async def test_an_empty_compressed_answer_is_empty() -> None:
    async with serving({"/": encoded_response("gzip", b"")}) as site, close_after(local_egress()) as egress:
        assert (await egress.request("HEAD", f"http://a.test:{site.port}/")).body == b""


async def test_a_stream_arrives_while_it_is_sent() -> None:
    gate = asyncio.Event()

    async def two(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await gate.wait()
        writer.write(b"two")

    async with (
        serving({"/": two}) as site,
        close_after(local_egress()) as egress,
        egress.stream("GET", f"http://a.test:{site.port}/") as stream,
    ):
        pieces = aiter(stream)
        assert (stream.status, await anext(pieces)) == (200, b"one")
        gate.set()
        assert [piece async for piece in pieces] == [b"two"]


async def test_the_time_limit_covers_resolving_waiting_and_a_dripping_body() -> None:
    over = asyncio.Event()

    async def silent(writer: asyncio.StreamWriter) -> None:
        await over.wait()

    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not over.is_set():
            writer.write(b"x")
            await asyncio.sleep(0.02)

    async def slow(host: str, port: int) -> Sequence[str]:
        await over.wait()
        return ["127.0.0.1"]

    async with serving({"/silent": silent, "/dripping": dripping, "/loop": redirect_to("/silent")}) as site:
        for egress, path in (
            (local_egress(), "/silent"),
            (local_egress(), "/dripping"),
            (local_egress(), "/loop"),
            (Egress(resolver=slow), "/"),
        ):
            async with close_after(egress):
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    with pytest.raises(EgressTimeout):
                        await egress.request("GET", f"http://a.test:{site.port}{path}", timeout=0.2, follow=1)
        over.set()
