"""A name server on loopback, whose records a test sets; it can also be silent, or fail."""

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

TYPES = {"CNAME": 5, "TXT": 16}
_KINDS = {number: kind for kind, number in TYPES.items()}
_OK, _FAILURE, _MISSING = 0x8180, 0x8182, 0x8183


class NameServer:
    """It has a thread of its own, so that it answers however busy the test is."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        self.question_counts: Counter[tuple[str, str]] = Counter()
        self.is_silent = False
        self.fails = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def set(self, name: str, kind: str, *values: str) -> None:
        """Sets the records of a name; none takes them away."""
        self.records[name, kind] = list(values)

    def close(self) -> None:
        # Nothing but a datagram wakes the thread.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as knock:
            knock.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            data, sender = self._socket.recvfrom(4096)
            if not data:
                return
            self._answer(data, sender)

    def _answer(self, data: bytes, sender: Any) -> None:
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
        is_name = any(each for (record_name, _), each in self.records.items() if record_name == name)
        flags = _FAILURE if self.fails else _OK if is_name else _MISSING
        answers = [] if self.fails else [_build_record(kind, value) for value in values]
        header = data[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, 0)
        self._socket.sendto(header + data[12 : at + 5] + b"".join(answers), sender)


def _build_record(kind: str, value: str) -> bytes:
    """A record of the name that was asked for."""
    if kind == "TXT":
        text = value.encode()
        parts = [text[start : start + 255] for start in range(0, len(text), 255)]
        content = b"".join(bytes((len(part),)) + part for part in parts)
    else:
        content = b"".join(bytes((len(label),)) + label.encode() for label in value.split(".")) + b"\0"
    return b"\xc0\x0c" + struct.pack(">HHIH", TYPES[kind], 1, 60, len(content)) + content


@contextlib.contextmanager
def open_name_servers(count: int = 2) -> Iterator[Sequence[NameServer]]:
    """Name servers, each at its `address`."""
    servers = [NameServer() for _ in range(count)]
    try:
        yield servers
    finally:
        for server in servers:
            server.close()
