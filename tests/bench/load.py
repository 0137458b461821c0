"""Load over HTTP, and what it cost the server: CPU seconds of its processes, not the time that passed."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from tests.bench.callers import Answer, Caller, run_callers
from tests.bench.processes import cpu_by_process, cpu_seconds

_ROOT = Path(__file__).parents[2]
_TIMEOUT_SECONDS = 120.0
# The share of one processor below which a process that has just started has nothing more to prepare.
_IDLE = 0.1
_LOOK = 0.5

Make = Callable[[int], bytes]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def start_server(
    *command: str, port: int, environment: dict[str, str] | None = None, python: str = sys.executable
) -> AsyncIterator[int]:
    """A server in a process of its own; its pid once it listens and has nothing left to prepare."""
    base_environment = {name: value for name, value in os.environ.items() if not name.startswith("BAOBAB_")}
    process = subprocess.Popen(
        [python, *command],
        env={**base_environment, **(environment or {})},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=_ROOT,
    )
    try:
        await _wait_for_port(port, process)
        await wait_until_idle(process.pid)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            # Its workers end with it.
            process.kill()
            process.wait(20)


async def _wait_for_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(int(_TIMEOUT_SECONDS / 0.1)):
        if process.poll() is not None:
            raise RuntimeError("the server ended before it listened")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the server does not listen")


async def wait_until_idle(pid: int) -> None:
    """What a server does after its start, all its workers included, is no part of what a request costs."""
    end = time.monotonic() + _TIMEOUT_SECONDS
    quiet, before = 0, cpu_by_process(pid)
    while quiet < 3:
        if time.monotonic() > end:
            raise RuntimeError("the server does not come to rest")
        await asyncio.sleep(_LOOK)
        now = cpu_by_process(pid)
        idle = all(cpu - before.get(process, 0.0) < _IDLE * _LOOK for process, cpu in now.items())
        quiet, before = quiet + 1 if idle else 0, now


async def measure_microseconds(
    pid: int, port: int, make: Make, *, requests: int, connections: int = 16, status: int = 200, holds: bytes = b""
) -> float:
    """CPU of the server for one request, in microseconds, over keep-alive connections.

    holds: what every answer must have in its body: a refusal that has the right status would be cheap.
    """
    await _send_requests(port, make, requests // 10, connections, status, holds)
    before = cpu_seconds(pid)
    await _send_requests(port, make, requests, connections, status, holds)
    return (cpu_seconds(pid) - before) / requests * 1e6


async def fetch_body(port: int, request: bytes) -> bytes:
    """The body of the answer to one request."""
    bodies = []

    def caller() -> Caller:
        answer = yield request
        bodies.append(answer.body)

    await run_callers(port, [caller()])
    return bodies[0]


async def _send_requests(port: int, make: Make, requests: int, connections: int, status: int, holds: bytes) -> None:
    numbers = iter(range(requests))
    await run_callers(port, [_caller(make, numbers, status, holds) for _ in range(connections)])


def _caller(make: Make, numbers: Iterator[int], status: int, holds: bytes) -> Caller:
    for number in numbers:
        check_answer((yield make(number)), status, holds)


def check_answer(answer: Answer, status: int, holds: bytes = b"") -> None:
    if answer.status != status:
        raise RuntimeError(f"expected {status}: {answer.status} {answer.body[:300]!r}")
    if holds not in answer.body:
        raise RuntimeError(f"expected {holds!r}: {answer.body[:300]!r}")


def build_request(method: str, path: str, port: int, body: bytes = b"", **headers: str) -> bytes:
    fields = {"host": f"127.0.0.1:{port}", "accept": "application/json", **headers}
    if body:
        fields = {"content-type": "application/json", "content-length": str(len(body)), **fields}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join((f"{method} {path} HTTP/1.1", *lines)).encode() + b"\r\n\r\n" + body
