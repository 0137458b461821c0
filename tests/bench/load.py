"""Load over HTTP, and what it cost the server: CPU seconds of its process, not the time that passed."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_ROOT = Path(__file__).parents[2]

Make = Callable[[int], bytes]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.asynccontextmanager
async def served(
    *command: str, port: int, environment: dict[str, str] | None = None, python: str = sys.executable
) -> AsyncIterator[int]:
    """A server in a process of its own; its pid once it listens."""
    process = subprocess.Popen(
        [python, *command],
        env={**os.environ, **(environment or {})},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=_ROOT,
    )
    try:
        await _listening(port, process)
        # What a server does after its start is no part of what a request costs.
        await asyncio.sleep(3)
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


async def _listening(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(200):
        if process.poll() is not None:
            raise RuntimeError("the server ended before it listened")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the server does not listen")


async def microseconds(
    pid: int, port: int, make: Make, *, requests: int, connections: int = 16, status: int = 200, holds: bytes = b""
) -> float:
    """CPU of the server for one request, in microseconds, over keep-alive connections.

    holds: what every answer must have in its body: a refusal that has the right status would be cheap.
    """
    await _send(port, make, requests // 10, connections, status, holds)
    before = cpu_seconds(pid)
    await _send(port, make, requests, connections, status, holds)
    return (cpu_seconds(pid) - before) / requests * 1e6


async def answered(port: int, sent: bytes) -> bytes:
    """The body of the answer to one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await _body(reader, await reader.readuntil(b"\r\n\r\n"))
    finally:
        writer.close()


async def _send(port: int, make: Make, requests: int, connections: int, status: int, holds: bytes) -> None:
    numbers = iter(range(requests))
    await asyncio.gather(*(_connection(port, make, numbers, status, holds) for _ in range(connections)))


async def _connection(port: int, make: Make, numbers: Iterator[int], status: int, holds: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    expected = f"HTTP/1.1 {status}".encode()
    for number in numbers:
        writer.write(make(number))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(expected):
            raise RuntimeError(f"expected {status}: {head[:200]!r}")
        if status != 204:
            body = await _body(reader, head)
            if holds not in body:
                raise RuntimeError(f"expected {holds!r}: {body[:300]!r}")
    writer.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """A body of a known length, or one in chunks with their lengths between."""
    if b"chunked" in head:
        return await reader.readuntil(b"\r\n0\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(length or 0))


def request(method: str, path: str, port: int, body: bytes = b"", **headers: str) -> bytes:
    given = {"host": f"127.0.0.1:{port}", "accept": "application/json", **headers}
    if body:
        given = {"content-type": "application/json", "content-length": str(len(body)), **given}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    return "\r\n".join((f"{method} {path} HTTP/1.1", *lines)).encode() + b"\r\n\r\n" + body
