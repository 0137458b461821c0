"""Names of outgoing requests, asked of a name server that answers for some of them and never for others."""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab.runtime.net.egress import Egress, EgressTimeout, EgressUnavailable
from baobab.runtime.net.host_resolver import HostResolver
from baobab.tools.core.tenancy import set_tenant

TIMEOUT_SECONDS = 120


class NameServer(asyncio.DatagramProtocol):
    """Says that all names are 127.0.0.1; `slow...` gets no answer, and `none...` is no name."""

    def __init__(self) -> None:
        self.question_counts: Counter[str] = Counter()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: Any) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        name, question = ".".join(labels), data[12 : at + 5]
        (kind,) = struct.unpack(">H", data[at + 1 : at + 3])
        self.question_counts[name] += 1
        if name.startswith("slow"):
            return
        flags, answers = (0x8183, 0) if name.startswith("none") else (0x8180, int(kind == 1))
        answer = data[:2] + struct.pack(">HHHHH", flags, 1, answers, 0, 0) + question
        if answers:
            answer += b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01"
        self._transport.sendto(answer, sender)


@pytest.fixture
async def server() -> AsyncIterator[tuple[NameServer, HostResolver]]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    names = HostResolver([f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"])
    yield protocol, names
    await names.close()
    transport.close()


async def resolve_host(names: HostResolver, host: str, tenant: str) -> list[str]:
    set_tenant(tenant)
    return await names.resolve(host, 443)


async def test_a_name_is_asked_for_once_by_many_and_then_known(server: tuple[NameServer, HostResolver]) -> None:
    stub, names = server
    answers = await asyncio.gather(*(names.resolve("good.example", 443) for _ in range(20)))
    assert answers == [["127.0.0.1"]] * 20
    assert await names.resolve("good.example", 80) == ["127.0.0.1"]
    # For either family of addresses.
    assert stub.question_counts["good.example"] == 2


async def test_that_there_is_no_such_name_is_known_for_a_while_too(server: tuple[NameServer, HostResolver]) -> None:
    stub, names = server
    for _ in range(3):
        with pytest.raises(OSError, match="does not resolve"):
            await names.resolve("none.example", 443)
    assert stub.question_counts["none.example"] <= 2


async def test_the_hosts_of_the_machine_are_read(server: tuple[NameServer, HostResolver]) -> None:
    stub, names = server
    [hosts_line, *_] = [line.split() for line in Path("/etc/hosts").read_text().splitlines() if line.startswith("127.")]
    assert hosts_line[0] in await names.resolve(hosts_line[1], 443)
    assert not stub.question_counts


async def test_slow_names_of_strangers_and_tenants_delay_nobody_else(server: tuple[NameServer, HostResolver]) -> None:
    stub, names = server
    slow = [
        asyncio.create_task(resolve_host(names, f"slow{number}.example", f"{who}:{number % 3}"))
        for number in range(300)
        for who in ("stranger", "organisation")
    ]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(stub.question_counts) < 3 * (2 + 16):
            await asyncio.sleep(0.001)
    for tenant in ("platform", "another", "stranger:9"):
        name, names_before = f"good-{tenant.partition(':')[0]}.example", len(stub.question_counts)
        assert await resolve_host(names, name, tenant) == ["127.0.0.1"]
        # Its question arrived before those that waited, at whatever speed this process gets to them.
        assert list(stub.question_counts).index(name) - names_before < 54
    # Each has a few lookups under way, however many it wants.
    assert len([name for name in stub.question_counts if name.startswith("slow")]) < 300
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_a_request_to_a_slow_name_ends_in_time_and_others_go_out(server: tuple[NameServer, HostResolver]) -> None:
    _, names = server
    egress = Egress(["127.0.0.0/8"], resolver=names.resolve)
    served_server = await asyncio.start_server(_hello, "127.0.0.1", 0)
    port = served_server.sockets[0].getsockname()[1]
    try:
        slow = [asyncio.create_task(egress.request("GET", f"http://slow{n}.example/", timeout=0.5)) for n in range(50)]
        answer = await egress.request("GET", f"http://good.example:{port}/", timeout=TIMEOUT_SECONDS)
        assert answer.body == b"hello"
        for task in slow:
            with pytest.raises((EgressTimeout, EgressUnavailable)):
                await task
    finally:
        await egress.close()
        served_server.close()


async def test_one_tenant_with_many_requests_to_a_host_leaves_room_for_another(
    server: tuple[NameServer, HostResolver],
) -> None:
    _, names = server
    egress = Egress(["127.0.0.0/8"], resolver=names.resolve)
    hanging = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/hang" in head:
            await hanging.wait()
        await _answer(writer)

    served_server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://good.example:{served_server.sockets[0].getsockname()[1]}"

    async def fetch(tenant: str, path: str) -> bytes:
        set_tenant(tenant)
        return (await egress.request("GET", url + path, timeout=TIMEOUT_SECONDS)).body

    try:
        many = [asyncio.create_task(fetch("one", "/hang")) for _ in range(80)]
        await asyncio.sleep(0)
        assert await asyncio.create_task(fetch("other", "/")) == b"hello"
        hanging.set()
        assert await asyncio.gather(*many) == [b"hello"] * 80
    finally:
        await egress.close()
        served_server.close()


async def _hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await _answer(writer)


async def _answer(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    await writer.drain()
    writer.close()
