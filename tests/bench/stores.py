"""The key-value engines of all backends side by side, in one process."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from baobab.storage.kv.engine import Engine, Quota, Tier
from baobab.storage.kv.engines import engine_at
from tests.bench.backends import NAMES, Servers
from tests.bench.kv_engine import MONTH, measure_rate
from tests.bench.table import Cell, best_cell, render_table

_OPERATIONS = ("get", "put", "incr")
_CALLERS = (64, 1)
_ROUNDS = 3
_SPACE = "app"
_KEYS = 50
"""Of each caller."""
_QUOTA = Quota(max_keys=1_000_000, max_bytes=1_000_000_000)

Rows = dict[str, dict[str, Cell]]


@dataclass
class _Load:
    """Calls to one engine, and what it must hold when they are over."""

    engine: Engine
    increments: int = 0
    written_values: dict[str, bytes] = field(default_factory=dict)

    async def get(self, caller: int, turn: int) -> None:
        key = _key(caller, turn)
        assert await self.engine.get(_SPACE, key) == self.written_values[key]

    async def put(self, caller: int, turn: int) -> None:
        key, value = _key(caller, turn), b'{"caller":%d,"turn":%d}' % (caller, turn)
        await self.engine.put(_SPACE, key, value, MONTH, Tier.DURABLE, _QUOTA)
        self.written_values[key] = value

    async def incr(self, caller: int, turn: int) -> None:
        await self.engine.incr(_SPACE, "hits", 1, None, _QUOTA)
        self.increments += 1

    async def fill(self) -> None:
        for turn in range(_KEYS):
            await asyncio.gather(*(self.put(caller, turn) for caller in range(max(_CALLERS))))

    async def check(self) -> None:
        counter_value = await self.engine.get(_SPACE, "hits")
        if counter_value != b"%d" % self.increments:
            raise RuntimeError(f"the counter stands at {counter_value!r}, after {self.increments} calls")
        for key, value in self.written_values.items():
            if await self.engine.get(_SPACE, key) != value:
                raise RuntimeError(f"{key} has not what was written last")


def run(servers: Servers) -> Rows:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return uvloop.run(_measure_rounds(Path(folder), servers))


async def _measure_rounds(folder: Path, servers: Servers) -> Rows:
    async with contextlib.AsyncExitStack() as stack:
        loads = {
            backend: _Load(await stack.enter_async_context(_open_engine(backend, folder, servers))) for backend in NAMES
        }
        for load in loads.values():
            await load.fill()
        rounds = [await _measure_round(loads, servers) for _ in range(_ROUNDS)]
        for load in loads.values():
            await load.check()
    return {
        work: {backend: best_cell([one[work][backend] for one in rounds]) for backend in NAMES} for work in rounds[0]
    }


async def _measure_round(loads: dict[str, _Load], servers: Servers) -> Rows:
    rows: Rows = {}
    for callers in _CALLERS:
        for operation in _OPERATIONS:
            cells = rows[f"{operation}, {callers} callers"] = {}
            for backend, load in loads.items():
                before = servers.cpu_seconds()
                per_second, cpu, calls = await measure_rate(getattr(load, operation), callers)
                cells[backend] = Cell(per_second, cpu, (servers.cpu_seconds() - before) / calls * 1e6)
    return rows


@contextlib.asynccontextmanager
async def _open_engine(backend: str, folder: Path, servers: Servers) -> AsyncIterator[Engine]:
    settings = servers.settings(backend)
    rows, valkey = settings.get("BAOBAB_DATABASE_URL", ""), settings.get("BAOBAB_VALKEY_URL", "")
    engine = engine_at(folder, rows, valkey, time.time, "valkey" if valkey else "database")
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def _key(caller: int, turn: int) -> str:
    return f"user:{caller}:{turn % _KEYS}"


def report(rows: Rows) -> Iterator[str]:
    yield from render_table("key-value engines", NAMES, rows)
