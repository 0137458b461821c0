"""The engine on two servers: the durable tier beside the rows, the ephemeral tier in Valkey."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self

from baobab.storage.kv import expiry, operations
from baobab.storage.kv.engine import ABSENT, Absent, Delete, Entry, Op, OpResult, Quota, Set, Tier, Usage
from baobab.storage.kv.errors import QueueFull, StoreClosed, StoreUnavailable
from baobab.storage.kv.idempotency import attempt_tokens
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.tiered.durable import DurableEngine, LookupRequest
from baobab.storage.kv.tiered.ephemeral import EphemeralTier
from baobab.storage.kv.tiered.group import WriteJob
from baobab.storage.kv.tiered.write_queue import WriteQueue

_LARGEST_LOAD = 250
# The largest number of digits of a sum.
_LONGEST_SUM = 20
_FREE = Quota()
_NOTHING = Usage(0, 0)


class TieredEngine:
    """Belongs to the event loop that opens it. Any number of processes may share the two servers.

    A write needs both: it holds a lock of its keys in Valkey, for `lease` seconds at most. A read of a durable key
    needs the durable tier alone; a key that is not there may be in the other tier, so without Valkey the read raises
    StoreUnavailable. If Valkey loses its memory, only the ephemeral entries are lost.

    A process that ends while it holds a lock holds up others that want the same keys until the lock expires. Its
    unfinished write is then made or not; nothing that was acknowledged is lost or returns.
    """

    def __init__(
        self,
        durable: DurableEngine,
        valkey_url: str,
        clock: Callable[[], float],
        *,
        lease: float = 5.0,
        timeout: float = 2.0,
        queue_limit: int = 10_000,
    ) -> None:
        self._durable = durable
        self._ephemeral = EphemeralTier(valkey_url, clock, lease=lease, timeout=timeout, queue_limit=queue_limit)
        self._clock = clock
        self._queue_limit = queue_limit
        self._write_queues: dict[str, WriteQueue] = {}
        self._tokens: Iterator[str] | None = None
        self._is_open = False

    async def open(self) -> None:
        await self._durable.open()
        try:
            await self._ephemeral.open()
        except StoreUnavailable:
            await self._durable.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        while self._write_queues:
            await asyncio.wait([write_queue.task for write_queue in self._write_queues.values()])
        await self._ephemeral.close()
        await self._durable.close()

    def for_attempt(self, token: str) -> Self:
        view = copy.copy(self)
        view._tokens = attempt_tokens(token)  # noqa: SLF001 - a copy of ourselves
        return view

    async def has_written(self, space: str, token: str) -> bool:
        self._require_open()
        return await self._durable.has_written(space, token) or await self._ephemeral.has_result(
            space, next(attempt_tokens(token))
        )

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        self._require_open()
        value = await self._durable.get(space, key)
        if value is None:
            row = await self._find_row(space, key)
            return None if row is None else row.value
        if touch and isinstance(await self._durable.ttl(space, key), int):
            job = WriteJob(lambda plan: operations.touch(plan, space, key), (key,), Tier.DURABLE, resizes=False)
            touched: bytes | None = await self._submit(space, job)
            return touched
        return value

    async def ttl(self, space: str, key: str) -> int | Absent | None:
        self._require_open()
        left = await self._durable.ttl(space, key)
        if left is not ABSENT:
            return left
        row = await self._find_row(space, key)
        if row is None:
            return ABSENT
        return None if row.expires is None else expiry.seconds_left(row.expires, self._ephemeral.now)

    async def exists(self, space: str, key: str) -> bool:
        self._require_open()
        return await self._durable.exists(space, key) or await self._find_row(space, key) is not None

    async def put(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> None:
        await self._write(
            space,
            [key],
            lambda plan: operations.put(plan, space, key, value, ttl, tier, quota),
            Usage(1, len(key) + len(value)),
            quota,
            tier=tier,
        )

    async def delete(self, space: str, key: str) -> int:
        count: int = await self._write(space, [key], lambda plan: operations.delete(plan, space, key))
        return count

    async def incr(self, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
        total: int = await self._write(
            space,
            [key],
            lambda plan: operations.incr(plan, space, key, by, ttl, quota),
            Usage(1, len(key) + _LONGEST_SUM),
            quota,
            resizes=False,
        )
        return total

    async def setnx(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> bool:
        was_written: bool = await self._write(
            space,
            [key],
            lambda plan: operations.setnx(plan, space, key, value, ttl, tier, quota),
            Usage(1, len(key) + len(value)),
            quota,
            tier=tier,
        )
        return was_written

    async def cas(
        self,
        space: str,
        key: str,
        expected: bytes,
        next: bytes,  # noqa: A002 - the word of the API
        ttl: int | None,
        quota: Quota,
    ) -> bool:
        swapped: bool = await self._write(
            space,
            [key],
            lambda plan: operations.cas(plan, space, key, expected, next, ttl, quota),
            Usage(1, len(key) + len(next)),
            quota,
            resizes=False,
        )
        return swapped

    async def expire(self, space: str, key: str, ttl: int | None) -> bool:
        exists_now: bool = await self._write(
            space, [key], lambda plan: operations.expire(plan, space, key, ttl), resizes=False
        )
        return exists_now

    async def batch(self, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
        stored = [op for op in ops if isinstance(op, Set)]
        results: list[OpResult] = await self._write(
            space,
            [op.key for op in ops],
            lambda plan: operations.batch(plan, space, ops, quota),
            Usage(len(stored), sum(len(op.key) + len(op.value) for op in stored)),
            quota,
            tier=_select_tier(ops),
        )
        return results

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        self._require_open()
        durable, following = await self._durable.scan(space, prefix, limit, cursor)
        ephemeral, moved = await self._ephemeral.keys(space, prefix, limit + 1, cursor)
        keys = sorted({*durable, *ephemeral})
        end = keys[limit - 1] if len(keys) > limit or following else None
        missed = [
            key
            for key in moved
            if key.startswith(prefix) and (cursor or "") < key and (end is None or key <= end) and key not in keys
        ]
        still_exist = await asyncio.gather(*(self.exists(space, key) for key in missed))
        keys = sorted([*keys, *itertools.compress(missed, still_exist)])
        return keys[:limit], keys[limit - 1] if len(keys) > limit or following else None

    async def usage(self, space: str) -> Usage:
        """Entries that move between the tiers at this moment may be counted twice, or not at all."""
        self._require_open()
        durable, ephemeral = await asyncio.gather(self._durable.usage(space), self._ephemeral.usage(space))
        return Usage(durable.keys + ephemeral.keys, durable.bytes + ephemeral.bytes)

    async def flush(self, space: str) -> int:
        live: int = await self._write(
            space, [], lambda plan: operations.flush(plan, space), alone=True, tier=Tier.DURABLE
        )
        return live

    async def sweep(self, limit: int = 1000) -> int:
        self._require_open()
        # Waits for the writes that were submitted before.
        if before := [
            write_queue.latest for write_queue in self._write_queues.values() if write_queue.latest is not None
        ]:
            await asyncio.wait(before)
        for space in await self._ephemeral.spaces("holders") | await self._ephemeral.spaces("doubt"):
            if keys := await self._ephemeral.list_doubtful(space):
                await self._submit(space, WriteJob(lambda _: None, tuple(keys), Tier.EPHEMERAL))
        count = await self._durable.sweep(limit)
        for space in sorted(await self._ephemeral.spaces("expiries")):
            if count >= limit:
                break
            count += await self._ephemeral.sweep(space, limit - count)
        return count

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        self._require_open()
        spaces_found = set(await self._durable.spaces(after, limit))
        for space in sorted(space for space in await self._ephemeral.spaces("entries") if space > (after or "")):
            if sum(other <= space for other in spaces_found) >= limit:
                break
            if (await self._ephemeral.usage(space)).keys:
                spaces_found.add(space)
        return sorted(spaces_found)[:limit]

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        self._require_open()
        durable = {entry.key: entry for entry in await self._durable.export(space, after, limit)}
        rows, moved = await self._ephemeral.rows(space, after, limit)
        entries = {key: Entry(key, row.value, Tier.EPHEMERAL, row.expires, row.window) for key, row in rows.items()}
        entries |= durable
        end = sorted(entries)[limit - 1] if len(entries) >= limit else None
        for key in moved:
            if key not in entries and (after or "") < key and (end is None or key < end):
                entries.update(await self._find_entry(space, key))
        return [entries[key] for key in sorted(entries)][:limit]

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        for start in range(0, len(entries), _LARGEST_LOAD):
            part = entries[start : start + _LARGEST_LOAD]
            await self._submit(
                space,
                WriteJob(
                    partial(operations.load, space=space, entries=part),
                    tuple(entry.key for entry in part),
                    Tier(min(entry.tier for entry in part)),
                    Usage(len(part), sum(len(entry.key) + len(entry.value) for entry in part)),
                ),
            )

    async def freeze(self, space: str) -> None:
        await self._submit(space, WriteJob(lambda plan: plan.freeze(space), (), Tier.DURABLE, alone=True))

    async def thaw(self, space: str) -> None:
        await self._submit(space, WriteJob(lambda plan: plan.thaw(space), (), Tier.DURABLE, alone=True))

    async def erase(self, space: str) -> None:
        await self._submit(space, WriteJob(lambda plan: operations.erase(plan, space), (), Tier.DURABLE, alone=True))

    async def check(self) -> None:
        self._require_open()
        await asyncio.gather(self._durable.check(), self._ephemeral.check())

    async def _find_row(self, space: str, key: str) -> Row | None:
        """Returns the row of a key that was not in the durable tier a moment ago.

        The ephemeral tier says when a key has moved to the durable one; while that happens, it looks there again.
        """
        row, mark = await self._ephemeral.find_row(space, key)
        while row is None and mark is not None:
            row = await self._find_durable_row(space, key)
            if row is None:
                before = mark
                row, mark = await self._ephemeral.find_row(space, key)
                if mark == before:
                    break
        return row

    async def _find_durable_row(self, space: str, key: str) -> Row | None:
        row = (await self._durable.look_up(LookupRequest(space, (key,)))).rows.get(key)
        return row if row is not None and expiry.is_live(row.expires, self._ephemeral.now) else None

    async def _find_entry(self, space: str, key: str) -> dict[str, Entry]:
        row, tier = await self._find_durable_row(space, key), Tier.DURABLE
        if row is None:
            row, tier = await self._find_row(space, key), Tier.EPHEMERAL
        return {} if row is None else {key: Entry(key, row.value, tier, row.expires, row.window)}

    async def _write(
        self,
        space: str,
        keys: Sequence[str],
        write: Callable[[Any], Any],
        growth: Usage = _NOTHING,
        quota: Quota = _FREE,
        *,
        tier: Tier | None = None,
        alone: bool = False,
        resizes: bool = True,
    ) -> Any:
        token = None if self._tokens is None else next(self._tokens)
        return await self._submit(
            space, WriteJob(write, tuple(keys), tier, growth, quota != _FREE, alone, resizes, token)
        )

    def _submit(self, space: str, job: WriteJob) -> asyncio.Future[Any]:
        self._require_open()
        for part in (space, *job.keys):
            # One caller's mistake must not fail the whole group.
            part.encode()
            if "\0" in part:
                raise ValueError("a key must not have NUL")
        write_queue = self._write_queues.get(space)
        if write_queue is None:
            write_queue = self._write_queues[space] = WriteQueue(space, self._durable, self._ephemeral, self._forget)
        elif write_queue.waiting_count >= self._queue_limit:
            raise QueueFull
        return write_queue.submit(job)

    def _forget(self, write_queue: WriteQueue) -> None:
        del self._write_queues[write_queue.space]

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosed


def _select_tier(ops: Sequence[Op]) -> Tier | None:
    """Returns the tier that a batch writes. Reads need no transaction, so they count as ephemeral."""
    if any(isinstance(op, Set) for op in ops):
        return Tier.DURABLE
    return None if any(isinstance(op, Delete) for op in ops) else Tier.EPHEMERAL
