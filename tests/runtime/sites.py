"""Servers for tests of the guarded client. They listen on loopback, so every test that gets an answer is also one in
which the operator allowed loopback.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from baobab.runtime.net.egress import (
    Egress,
    EgressError,
)

LOOPBACK = ["127.0.0.0/8", "::1/128"]
Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def build_resolver(**addresses_by_host: str | Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver: `a_test="10.0.0.1"` is the host a.test."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        addresses = addresses_by_host[host.replace(".", "_")]
        return [addresses] if isinstance(addresses, str) else addresses

    return resolve


async def fail_to_resolve(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was resolved")


def http_response(status: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Site:
    """A server that answers from a table of paths and keeps what it was sent."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers
        self.port = 0
        self.connections = 0
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append((first, headers, body))
                answer = self.answers[first.split()[1].partition("?")[0]]
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answers: dict[str, Answer], tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    site = Site(answers)
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    async with server:
        yield site


@asynccontextmanager
async def close_after(egress: Egress) -> AsyncIterator[Egress]:
    try:
        yield egress
    finally:
        await egress.close()


def local_egress(**addresses_by_host: str | Sequence[str]) -> Egress:
    """A client that may call loopback, under the names given, else a.test and b.test."""
    return Egress(
        LOOPBACK,
        timeout=60,
        resolver=build_resolver(**(addresses_by_host or {"a_test": "127.0.0.1", "b_test": "127.0.0.1"})),
    )


async def catch_refusal(url: str, egress: Egress | None = None) -> type[EgressError]:
    """The class of the refusal, after checking that its text tells no address that a name resolved to."""
    async with close_after(egress or Egress(resolver=fail_to_resolve)) as client:
        with pytest.raises(EgressError) as error_info:
            await client.request("GET", url)
    # The fixed part of the remedy has an example.
    text = f"{error_info.value} {error_info.value.remedy}".replace(error_info.type.remediation or "", "")
    assert not any(part in text for part in ("127.", "10.", "::"))
    return error_info.type


def redirect_to(location: str, status: str = "302 Found") -> bytes:
    return http_response(status, f"Location: {location}")
