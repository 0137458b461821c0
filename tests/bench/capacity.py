"""How much an installation on Postgres carries: what a run of an agent costs here, and what so many a day take.

One and two workers make runs on this machine. The model (capacity_model.py) says how many they make a second: once from
what these very runs cost, which only shows whether processors held them up, and once from what a run costs one worker
alone, which is a prediction. What it says of larger installations is computed, and compared with nothing.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import uvloop

from tests.bench.agents import Installation, run_many, start_installation
from tests.bench.backends import POSTGRES, Servers
from tests.bench.capacity_model import Cost, Machine, plan
from tests.bench.processes import cpu_seconds

_RUNS, _CALLERS, _WARM = 300, 16, 40
_ROUNDS = 3
_DAYS = (1e3, 1e6, 1e8)
_KEPT_DAYS = 90
"""As BAOBAB_RUN_RETENTION_DAYS has it by default."""


class Measured(NamedTuple):
    cost: Cost
    rate: float
    """Runs a second, the best of several rounds."""
    bytes: float
    """Of the database, indexes included, and of its log, for each run."""
    logged_bytes: float
    memory: float
    """Bytes of one worker."""


Found = dict[int, Measured]
"""By the number of workers."""


def run(servers: Servers) -> Found:
    return {workers: uvloop.run(_measure(servers, workers)) for workers in (1, 2)}


async def _measure(servers: Servers, workers: int) -> Measured:
    settings = servers.settings(POSTGRES)
    url = settings["BAOBAB_DATABASE_URL"]
    async with start_installation(settings, workers) as here:
        await run_many(here, "warm", _WARM * workers)
        rounds: list[tuple[float, Cost]] = []
        stored_bytes, logged_bytes = _read_sizes(url)
        for number in range(_ROUNDS):
            before = _read_cpu(servers, here)
            rate = await run_many(here, f"round {number}", _RUNS)
            seconds = [(now - then) / _RUNS for then, now in zip(before, _read_cpu(servers, here), strict=True)]
            rounds.append((rate, Cost(*seconds)))
        now_stored, now_logged = _read_sizes(url)
        runs = _RUNS * _ROUNDS
        memory = max(_read_memory(pid) for pid in _list_processes(here.pids[0]))
    rate, cost = max(rounds)
    return Measured(cost, rate, (now_stored - stored_bytes) / runs, (now_logged - logged_bytes) / runs, memory)


def _read_cpu(servers: Servers, here: Installation) -> tuple[float, float, float]:
    """Seconds of the workers, of the database and of this process, which calls."""
    own_times = os.times()
    return cpu_seconds(here.pids[0]), servers.cpu_seconds(), own_times.user + own_times.system


def _read_sizes(url: str) -> tuple[float, float]:
    with psycopg.connect(url, autocommit=True) as connection:
        query = "SELECT pg_database_size(current_database()), pg_current_wal_lsn() - '0/0'::pg_lsn"
        row: Any = connection.execute(query).fetchone()
        return float(row[0]), float(row[1])


def _list_processes(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *children]


def _read_memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has ended")


def report(measurements: Found) -> Iterator[str]:
    processors = os.cpu_count() or 1
    yield f"capacity, runs of agents on Postgres; {processors} processors for callers, workers and the database"
    yield f"{'':12}{'worker ms':>12}{'database ms':>12}{'caller ms':>12}{'runs/s':>10}{'own costs':>11}{'of one':>11}"
    for workers, measurement in measurements.items():
        own, of_one = (
            Machine(workers, processors).measure_batch(each.cost, _RUNS, _CALLERS) / measurement.rate
            for each in (measurement, measurements[1])
        )
        cost = "".join(f"{seconds * 1e3:12.2f}" for seconds in measurement.cost)
        label = f"{workers} worker{'s' * (workers > 1)}"
        yield f"{label:12}{cost}{measurement.rate:10.0f}{own:11.2f}{of_one:11.2f}"
    # A worker that has others beside it costs more than one alone.
    most = measurements[max(measurements)]
    megabytes = most.memory / 1e6
    yield f"{most.bytes:.0f} bytes kept and {most.logged_bytes:.0f} logged for a run; {megabytes:.0f} MB a worker"
    yield (
        f"{'runs a day':>12}{'at peak /s':>12}{'workers':>9}{'db cores':>9}{'connections':>12}"
        f"{'kept GB':>10}{'cells':>7}{'p95 ms':>8}"
    )
    for runs_of_day in _DAYS:
        need = plan(most.cost, most.bytes, runs_of_day, _KEPT_DAYS)
        # A hundred workers behave as ten do that get a tenth of the load.
        scale = max(1.0, need.workers / 10)
        machine = Machine(round(need.workers / scale), round((need.workers + need.processors) / scale) + 1)
        _, slow = machine.measure_latency(most.cost, 5000, need.peak / scale)
        yield (
            f"{runs_of_day:12.0f}{need.peak:12.2f}{need.workers:9}{need.processors:9}{need.connections:12}"
            f"{need.stored_bytes / 1e9:10.1f}{need.cells:7}{slow * 1e3:8.0f}"
        )
