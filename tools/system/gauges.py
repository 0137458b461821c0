"""Gauges of the installation itself: its stores, its jobs, its processes and its disk."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sqlalchemy import func, select

from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.kv.errors import KvError
from baobab.storage.objects.errors import ObjectError
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core import Services
from baobab.tools.core.gauges import Reading
from baobab.tools.system.toolset import system

_PAGE = os.sysconf("SC_PAGE_SIZE")


@system.gauge("baobab_store_up", labels=("store",))
async def read_store_states(services: Services) -> Reading:
    """Whether a store answers: 1 or 0."""
    return {store: float(seconds is not None) for store, seconds in (await _ask_stores(services)).items()}


@system.gauge("baobab_store_seconds", labels=("store",))
async def read_store_latencies(services: Services) -> Reading:
    """How long a store took to answer this scrape."""
    return {store: seconds for store, seconds in (await _ask_stores(services)).items() if seconds is not None}


@system.gauge("baobab_database_connections", labels=("region",))
async def read_connections(services: Services) -> Reading:
    """Connections to the database of rows that are in use by the process that answers."""
    return {(region,): float(stores.database.connections_in_use) for region, stores in services.regions.items()}


@system.gauge("baobab_copy")
async def read_copy(services: Services) -> Reading:
    """Whether the installation is a copy, which sends and starts nothing: 1 or 0."""
    return {(): float(services.liveness.is_copy)}


@system.gauge("baobab_jobs", labels=("state",))
async def read_jobs(services: Services) -> Reading:
    """Durable jobs by state: `waiting` for their time, `due`, `held` by a process, or `given_up`."""
    counts = dict.fromkeys(("waiting", "due", "held", "given_up"), 0.0)
    now = services.clock.now()
    open_ = jobs.c.finished_at.is_(None)
    states = {
        "waiting": open_ & jobs.c.held_by.is_(None) & (jobs.c.due_at > now),
        "due": open_ & jobs.c.held_by.is_(None) & (jobs.c.due_at <= now),
        "held": open_ & jobs.c.held_by.is_not(None),
        "given_up": jobs.c.error.is_not(None) & jobs.c.finished_at.is_not(None),
    }
    for database in {stores.database for stores in services.regions.values()}:
        async with database.reading() as connection:
            for state, condition in states.items():
                number = await connection.scalar(select(func.count()).select_from(jobs).where(condition))
                counts[state] += number or 0
    return {(state,): number for state, number in counts.items()}


@system.gauge("baobab_process_resident_bytes", labels=("pid",))
async def read_memory(services: Services) -> Reading:  # noqa: ARG001 - every gauge takes the services
    """Memory of each server process."""
    return {(str(pid),): float(_number(pid, "statm", 1) * _PAGE) for pid in _processes()}


@system.gauge("baobab_process_open_files", labels=("pid",))
async def read_open_files(services: Services) -> Reading:  # noqa: ARG001 - every gauge takes the services
    """Open file descriptors of each server process."""
    return {(str(pid),): float(_open_files(pid)) for pid in _processes()}


@system.gauge("baobab_disk_free_bytes")
async def read_free_space(services: Services) -> Reading:
    """Free space on the disk of the data folder."""
    return {(): float(shutil.disk_usage(services.options.data).free)}


@system.gauge("baobab_build_info", labels=("version",))
async def read_build(services: Services) -> Reading:
    """Always 1; the label is the version that runs."""
    return {(services.options.version,): 1.0}


@system.gauge("baobab_draining")
async def read_draining(services: Services) -> Reading:
    """1 while the process that answers is shutting down."""
    return {(): float(services.lifecycle.draining)}


async def _ask_stores(services: Services) -> dict[tuple[str, ...], float | None]:
    """Returns how many seconds each store took to answer; None for a store that did not."""
    checks: dict[str, Awaitable[float | None]] = {}
    for region, stores in services.regions.items():
        checks[f"database:{region}"] = _measure_latency(stores.database.ping, DatabaseUnavailable)
        checks[f"kv:{region}"] = _measure_latency(stores.kv.check, KvError)
        checks[f"objects:{region}"] = _measure_latency(stores.objects.check, ObjectError)
    answers = await asyncio.gather(*checks.values())
    seconds_by_store = dict(zip(checks, answers, strict=True))
    seconds_by_store |= dict.fromkeys(f"database:{region}" for region in services.closed_regions)
    return {(store,): seconds for store, seconds in seconds_by_store.items()}


async def _measure_latency(ask: Callable[[], Awaitable[None]], failure: type[Exception]) -> float | None:
    began = time.perf_counter()
    try:
        await ask()
    except failure:
        return None
    return time.perf_counter() - began


def _processes() -> list[int]:
    """Returns the ids of this server's processes on this machine; empty on systems without /proc."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    ids = [path.stem.rpartition("_")[2] for path in Path(folder).glob("*_*.db")] if folder else [str(os.getpid())]
    return sorted({int(pid) for pid in ids if pid.isdigit() and Path(f"/proc/{pid}/statm").exists()})


def _number(pid: int, file: str, place: int) -> int:
    return int(Path(f"/proc/{pid}/{file}").read_text().split()[place])


def _open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
