"""A name server on loopback, whose records a test sets; it can also be silent, or fail."""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

TYPES = {"CNAME": 5, "TXT": 16}
_KINDS = {number: kind for kind, number in TYPES.items()}
_OK, _FAILURE, _MISSING = 0x8180, 0x8182, 0x8183


class NameServer(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        self.question_counts: Counter[tuple[str, str]] = Counter()
        self.is_silent = False
        self.fails = False
        self.address = ""

    def set(self, name: str, kind: str, *values: str) -> None:
        """Sets the records of a name; none takes them away."""
        self.records[name, kind] = list(values)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: Any) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        name = ".".join(labels).lower()
        (number,) = struct.unpack(">H", data[at + 1 : at + 3])
        kind = _KINDS.get(number, str(number))
        self.question_counts[name, kind] += 1
        if self.is_silent:
            return
        values = self.records.get((name, kind), [])
        is_name = any(each for (known, _), each in self.records.items() if known == name)
        flags = _FAILURE if self.fails else _OK if is_name else _MISSING
        answers = [] if self.fails else [_build_record(kind, value) for value in values]
        header = data[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, 0)
        self._transport.sendto(header + data[12 : at + 5] + b"".join(answers), sender)


def _build_record(kind: str, value: str) -> bytes:
    """A record of the name that was asked for."""
    if kind == "TXT":
        text = value.encode()
        parts = [text[start : start + 255] for start in range(0, len(text), 255)]
        content = b"".join(bytes((len(part),)) + part for part in parts)
    else:
        content = b"".join(bytes((len(label),)) + label.encode() for label in value.split(".")) + b"\0"
    return b"\xc0\x0c" + struct.pack(">HHIH", TYPES[kind], 1, 60, len(content)) + content


@contextlib.asynccontextmanager
async def open_name_servers(count: int = 2) -> AsyncIterator[Sequence[NameServer]]:
    """Name servers, each at its `address`."""
    loop = asyncio.get_running_loop()
    transports, servers = [], []
    try:
        for _ in range(count):
            transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
            server.address = f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"
            transports.append(transport)
            servers.append(server)
        yield servers
    finally:
        for transport in transports:
            transport.close()
