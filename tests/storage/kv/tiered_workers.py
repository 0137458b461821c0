"""Workers that share two tiers, and what stops them in the middle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from baobab.storage.kv import (
    Engine,
    Entry,
    Quota,
    StoreUnavailable,
    Tier,
    Usage,
)
from baobab.storage.kv.tiered.durable import DurableEngine, LookupRequest, LookupResult
from baobab.storage.kv.tiered.engine import TieredEngine
from baobab.storage.kv.tiered.ephemeral import EphemeralTier, LockRequest
from baobab.storage.kv.tiered.postgres import PostgresDurableEngine
from baobab.storage.kv.tiered.sqlite import SqliteDurableEngine

T = TypeVar("T")

FREE = Quota()
D, E = Tier.DURABLE, Tier.EPHEMERAL
NOTHING = Usage(0, 0)
CHILD = Path(__file__).with_name("tiered_child.py")


@asynccontextmanager
async def open_workers(
    make: Callable[[], DurableEngine], url: str, count: int = 2, **options: Any
) -> AsyncIterator[list[TieredEngine]]:
    engines = [TieredEngine(make(), url, time.time, **options) for _ in range(count)]
    for engine in engines:
        await engine.open()
    try:
        yield engines
    finally:
        for engine in engines:
            await engine.close()


@asynccontextmanager
async def open_ephemeral(url: str, lease: float = 60.0) -> AsyncIterator[EphemeralTier]:
    """A worker that a test leads step by step, and that may never come to the end of its turn."""
    made = EphemeralTier(url, time.time, lease=lease, timeout=2.0, queue_limit=100)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def wait_until_answering(engine: Engine) -> None:
    """Returns when it is served again, all by itself."""
    for _ in range(1000):
        try:
            return await engine.check()
        except StoreUnavailable:
            await asyncio.sleep(0.02)
    pytest.fail("the engine did not recover")


def list_ephemeral_keys(url: str) -> list[str]:
    """The ephemeral entries of the space `app`."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return sorted(client.hkeys("kv:{app}:entries"))


def expire_locks(url: str) -> None:
    """Let every turn in the space `app` be over, as if its lease had run out."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        for holder, turn in client.hgetall("kv:{app}:holders").items():
            _, terms = turn.split(":", 1)
            client.hset("kv:{app}:holders", holder, f"1:{terms}")


def lock_request(*keys: str) -> LockRequest:
    return LockRequest("app", keys, (), alone=False, growth=NOTHING)


class HookedDurable:
    """Does something, once or always, before and after the transactions of a durable tier."""

    before: Callable[[], Awaitable[None]] | None = None
    around: Callable[[], Awaitable[None]] | None = None

    async def change_rows(self, request: LookupRequest, work: Callable[[Any, LookupResult], T], *, resizes: bool) -> T:
        before, self.before = self.before, None
        if before is not None:
            await before()
        if self.around is not None:
            await self.around()
        changed: T = await super().change_rows(request, work, resizes=resizes)  # type: ignore[misc]
        if self.around is not None:
            await self.around()
        return changed


class HookedSqlite(HookedDurable, SqliteDurableEngine):
    pass


class HookedPostgres(HookedDurable, PostgresDurableEngine):
    pass


class PausedSqlite(HookedSqlite):
    """Keeps what it has read to itself until `meanwhile` is done, once."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        return await self._after(await super().get(space, key, touch))

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        return await self._after(await super().scan(space, prefix, limit, cursor))

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        return await self._after(await super().export(space, after, limit))

    async def _after(self, found: T) -> T:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found
