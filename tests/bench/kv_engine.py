"""How the engine compares with the same work written plainly on SQLAlchemy and aiosqlite.

Both sides write distinct values to WAL files at synchronous=FULL, in one
run and on one disk, so the ratios travel better than the numbers.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.sqlite import SqliteEngine
from tests.bench.size import size

CALLERS = 64
SECONDS = 0.8 / size(1, 20)
MONTH = 30 * 24 * 3600
QUOTA = Quota(max_keys=1_000_000, max_bytes=1_000_000_000)

# One call, told which caller it is and how many calls that caller made before.
Call = Callable[[int, int], Awaitable[object]]


class SqlAlchemyPeer:
    """What a careful user of the two libraries writes: writes begin IMMEDIATE, and a counter is one UPDATE.

    One connection for writes: SQLite has one writer, and more connections only poll for its lock. Reads have theirs.
    """

    def __init__(self, folder: Path) -> None:
        address = f"sqlite+aiosqlite:///{folder / 'peer.db'}"
        self._writes = create_async_engine(address, pool_size=1, max_overflow=0, pool_timeout=60)
        self._reads = create_async_engine(address, pool_size=4, max_overflow=0, pool_timeout=60)
        for engine, begin in ((self._writes, "BEGIN IMMEDIATE"), (self._reads, "BEGIN")):
            _control_transactions(engine, begin)

    async def open(self) -> None:
        async with self._writes.begin() as connection:
            await connection.execute(
                text(
                    "CREATE TABLE entry (space TEXT, key TEXT, value BLOB, expires INTEGER,"
                    " PRIMARY KEY (space, key)) WITHOUT ROWID"
                )
            )

    async def close(self) -> None:
        await self._writes.dispose()
        await self._reads.dispose()

    async def incr(self, space: str, key: str) -> int:
        async with self._writes.begin() as connection:
            result = await connection.execute(
                text(
                    "INSERT INTO entry (space, key, value) VALUES (:space, :key, 1)"
                    " ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value"
                ),
                {"space": space, "key": key},
            )
            return int(result.scalar_one())

    async def put(self, space: str, key: str, value: bytes, ttl: int) -> None:
        async with self._writes.begin() as connection:
            await connection.execute(
                text(
                    "INSERT INTO entry (space, key, value, expires) VALUES (:space, :key, :value, :expires)"
                    " ON CONFLICT DO UPDATE SET value = excluded.value, expires = excluded.expires"
                ),
                {"space": space, "key": key, "value": value, "expires": int(time.time()) + ttl},
            )

    async def get(self, space: str, key: str) -> Any:
        async with self._reads.connect() as connection:
            result = await connection.execute(
                text(
                    "SELECT value FROM entry WHERE space = :space AND key = :key"
                    " AND (expires IS NULL OR expires > :now)"
                ),
                {"space": space, "key": key, "now": int(time.time())},
            )
            return result.scalar_one_or_none()


def _control_transactions(engine: AsyncEngine, begin: str) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        # The driver's own BEGIN would come too late, and deferred.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine.sync_engine, "begin")
    def start(connection: Any) -> None:
        connection.exec_driver_sql(begin)


class Rate(NamedTuple):
    per_second: float
    cpu: float
    """Microseconds of this process's CPU a call."""
    calls: int


async def measure_rate(call: Call, callers: int) -> Rate:
    calls = 0
    end = time.perf_counter() + SECONDS

    async def caller(number: int) -> None:
        nonlocal calls
        turn = 0
        while time.perf_counter() < end:
            await call(number, turn)
            turn += 1
            calls += 1

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller(number) for number in range(callers)))
    return Rate(calls / (time.perf_counter() - began), (time.process_time() - cpu) / calls * 1e6, calls)


def _key(caller: int, turn: int) -> str:
    return f"user:{caller}:{turn % 100}"


def _value(caller: int, turn: int) -> bytes:
    return b'{"caller":%d,"turn":%d}' % (caller, turn)


async def measure_operations() -> dict[str, dict[str, float]]:
    """Per operation: calls a second of both sides, their ratio, and the engine's CPU a call."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        engine, peer = SqliteEngine(Path(name) / "engine"), SqlAlchemyPeer(Path(name))
        await engine.open()
        await peer.open()
        calls: dict[str, tuple[Call, Call]] = {
            "incr": (
                lambda *_: engine.incr("app", "hits", 1, None, QUOTA),
                lambda *_: peer.incr("app", "hits"),
            ),
            "set": (
                lambda caller, turn: engine.put(
                    "app", _key(caller, turn), _value(caller, turn), MONTH, Tier.DURABLE, QUOTA
                ),
                lambda caller, turn: peer.put("app", _key(caller, turn), _value(caller, turn), MONTH),
            ),
            "get": (
                lambda caller, turn: engine.get("app", _key(caller, turn)),
                lambda caller, turn: peer.get("app", _key(caller, turn)),
            ),
        }
        results = {}
        for callers in (CALLERS, 1):
            for operation, (ours, theirs) in calls.items():
                engine_rate, engine_cpu, _ = await measure_rate(ours, callers)
                peer_rate, peer_cpu, _ = await measure_rate(theirs, callers)
                results[f"{operation}, {callers} callers"] = {
                    "engine_per_second": engine_rate,
                    "peer_per_second": peer_rate,
                    "ratio": engine_rate / peer_rate,
                    "engine_cpu_us": engine_cpu,
                    "peer_cpu_us": peer_cpu,
                }
        await engine.close()
        await peer.close()
    return results


def run() -> dict[str, dict[str, float]]:
    return asyncio.run(measure_operations())


def report(results: dict[str, dict[str, float]]) -> Iterator[str]:
    yield f"{'':<18}{'engine/s':>10}{'peer/s':>10}{'ratio':>8}{'engine us':>11}{'peer us':>10}"
    for operation, row in results.items():
        yield (
            f"{operation:<18}{row['engine_per_second']:>10.0f}{row['peer_per_second']:>10.0f}{row['ratio']:>8.1f}"
            f"{row['engine_cpu_us']:>11.1f}{row['peer_cpu_us']:>10.1f}"
        )
