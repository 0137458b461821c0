"""A server's start and rest, against a process that only imports FastAPI, SQLAlchemy and LangGraph."""

import asyncio
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench.load import free_port, wait_until_idle
from tests.bench.processes import cpu_seconds
from tests.bench.size import size

_ROUNDS = size(5)
_TIMEOUT_SECONDS = 120.0
_PEER = "import fastapi, sqlalchemy.ext.asyncio, langgraph.graph; print(flush=True); input()"
_BARS = {"ready": 1.3, "all": 2.4, "memory": 1.6}
"""How many times as much as the bare imports a server may take."""


class Costs(NamedTuple):
    """Of each figure the least of some rounds."""

    ready: float
    """CPU seconds until it answers."""
    all: float
    """CPU seconds until nothing loads behind that any more."""
    memory: float
    """Megabytes that are its own then, or shared with nobody."""


def run() -> dict[str, Costs]:
    with tempfile.TemporaryDirectory() as folder:
        # Migrations are part of the first start only.
        _measure_server(folder)
        rounds = [(_measure_server(folder), _measure_peer()) for _ in range(_ROUNDS)]
    columns = zip(("baobab", "bare imports"), zip(*rounds, strict=True), strict=True)
    return {name: Costs(*map(min, zip(*costs, strict=True))) for name, costs in columns}


def _measure_server(folder: str) -> Costs:
    port = free_port()
    command = ["-m", "baobab", "serve", "--data", folder, "--port", str(port)]

    def answers() -> bool:
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).read())
        except OSError:
            return False

    return _measure_process(command, answers)


def _measure_peer() -> Costs:
    return _measure_process(["-c", _PEER], None)


def _measure_process(command: list[str], answers: Callable[[], bool] | None) -> Costs:
    """answers: whether the process does what it was started for; None if it says so itself, in a line."""
    process = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        if answers is None:
            assert process.stdout is not None
            process.stdout.readline()
        else:
            ends_at = time.monotonic() + _TIMEOUT_SECONDS
            while not answers():
                if process.poll() is not None or time.monotonic() > ends_at:
                    raise RuntimeError("the server does not answer")
                time.sleep(0.02)
        ready = cpu_seconds(process.pid)
        asyncio.run(wait_until_idle(process.pid))
        return Costs(ready, cpu_seconds(process.pid), _measure_memory(process.pid))
    finally:
        process.terminate()
        process.wait(20)


def _measure_memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    return float(sizes["Pss"].split()[0]) / 1024


def report(costs: dict[str, Costs]) -> Iterator[str]:
    yield "Start and rest: CPU seconds until it answers, and until all is loaded; megabytes when idle"
    yield ""
    yield f"{'':16}{'ready s':>10}{'all s':>10}{'MB':>8}"
    for name, cost in costs.items():
        yield f"{name:16}{cost.ready:10.2f}{cost.all:10.2f}{cost.memory:8.0f}"
    ours, bare = costs["baobab"], costs["bare imports"]
    ratios = {figure: getattr(ours, figure) / getattr(bare, figure) for figure in _BARS}
    yield ""
    yield "baobab / bare imports: " + ", ".join(
        f"{figure} {ratio:.2f} (to hold: at most {_BARS[figure]})" for figure, ratio in ratios.items()
    )
