"""The engine on two SQLite files: the durable tier synced at every commit, the ephemeral one left to the system."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import apsw

from baobab.storage.kv import expiry, operations, page
from baobab.storage.kv.engine import ABSENT, Absent, Entry, Op, OpResult, Quota, Tier, Usage
from baobab.storage.kv.errors import StoreClosed
from baobab.storage.kv.files import Faults, Files
from baobab.storage.kv.idempotency import SPACE, attempt_tokens, make_idempotent
from baobab.storage.kv.reader import Reader
from baobab.storage.kv.tier_file import TierFile
from baobab.storage.kv.transaction import Transaction
from baobab.storage.kv.writer import Writer

T = TypeVar("T")

# A waiting read blocks the event loop; in WAL mode it waits only while another process recovers a WAL.
_LONGEST_READ_WAIT = 0.25


class _OpenTiers(NamedTuple):
    reader: Reader
    writer: Writer
    durable: TierFile
    ephemeral: TierFile


class SqliteEngine:
    """The engine on SQLite files. It belongs to the event loop that opens it; any number of processes may use one
    folder.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        *,
        busy_timeout: float = 5.0,
        queue_limit: int = 10_000,
        boot_id: str | None = None,
    ) -> None:
        self._files = Files(folder, boot_id)
        self._faults = Faults()
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._queue_limit = queue_limit
        self._open_tiers: _OpenTiers | None = None
        self._tokens: Iterator[str] | None = None

    async def open(self) -> None:
        try:
            reader, durable, ephemeral = await asyncio.to_thread(self._open_files)
        except (apsw.Error, OSError) as exc:
            raise self._faults.translate(exc) from exc
        writer = Writer(durable, ephemeral, self._clock, asyncio.get_running_loop(), self._queue_limit, self._faults)
        self._open_tiers = _OpenTiers(reader, writer, durable, ephemeral)

    async def close(self) -> None:
        if self._open_tiers is None:
            return
        tiers, self._open_tiers = self._open_tiers, None
        await tiers.writer.close()
        tiers.reader.close()
        tiers.durable.close()
        tiers.ephemeral.close()

    def for_attempt(self, token: str) -> Self:
        view = copy.copy(self)
        view._tokens = attempt_tokens(token)  # noqa: SLF001 - a copy of ourselves
        return view

    async def has_written(self, space: str, token: str) -> bool:
        return self._reader.row(SPACE, next(attempt_tokens(token))) is not None

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        row = self._reader.row(space, key)
        if row is None:
            return None
        if touch and row.window is not None:
            return await self._writer.submit(lambda transaction: operations.touch(transaction, space, key))
        return row.value

    async def ttl(self, space: str, key: str) -> int | Absent | None:
        reader = self._reader
        row = reader.row(space, key)
        if row is None:
            return ABSENT
        return None if row.expires is None else expiry.seconds_left(row.expires, reader.now)

    async def exists(self, space: str, key: str) -> bool:
        return self._reader.row(space, key) is not None

    async def put(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> None:
        await self._write(lambda transaction: operations.put(transaction, space, key, value, ttl, tier, quota))

    async def delete(self, space: str, key: str) -> int:
        return await self._write(lambda transaction: operations.delete(transaction, space, key))

    async def incr(self, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
        return await self._write(lambda transaction: operations.incr(transaction, space, key, by, ttl, quota))

    async def setnx(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> bool:
        return await self._write(lambda transaction: operations.setnx(transaction, space, key, value, ttl, tier, quota))

    async def cas(
        self,
        space: str,
        key: str,
        expected: bytes,
        next: bytes,  # noqa: A002 - the word of the API
        ttl: int | None,
        quota: Quota,
    ) -> bool:
        return await self._write(
            lambda transaction: operations.cas(transaction, space, key, expected, next, ttl, quota)
        )

    async def expire(self, space: str, key: str, ttl: int | None) -> bool:
        return await self._write(lambda transaction: operations.expire(transaction, space, key, ttl))

    async def batch(self, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
        return await self._write(lambda transaction: operations.batch(transaction, space, ops, quota))

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        lowest, above = page.bounds(prefix, cursor)
        return page.cut(self._reader.keys(space, lowest, above, limit + 1), limit)

    async def usage(self, space: str) -> Usage:
        return self._reader.usage(space)

    async def flush(self, space: str) -> int:
        return await self._write(lambda transaction: operations.flush(transaction, space))

    async def sweep(self, limit: int = 1000) -> int:
        return await self._writer.submit(lambda transaction: transaction.remove_expired(limit))

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        return self._reader.spaces(after or "", limit)

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        return self._reader.entries(space, *page.bounds("", after), limit)

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        await self._writer.submit(lambda transaction: operations.load(transaction, space, entries))

    async def freeze(self, space: str) -> None:
        await self._writer.submit(lambda transaction: transaction.freeze(space))

    async def thaw(self, space: str) -> None:
        await self._writer.submit(lambda transaction: transaction.thaw(space))

    async def erase(self, space: str) -> None:
        await self._writer.submit(lambda transaction: operations.erase(transaction, space))

    async def check(self) -> None:
        self._faults.require_sound()
        self._reader.usage("")
        await self._writer.submit(lambda _: None)

    def _write(self, write: Callable[[Transaction], T]) -> asyncio.Future[T]:
        return self._writer.submit(write if self._tokens is None else make_idempotent(next(self._tokens), write))

    @property
    def _reader(self) -> Reader:
        return self._require_open().reader

    @property
    def _writer(self) -> Writer:
        return self._require_open().writer

    def _require_open(self) -> _OpenTiers:
        if self._open_tiers is None:
            raise StoreClosed
        return self._open_tiers

    def _open_files(self) -> tuple[Reader, TierFile, TierFile]:
        self._files.prepare(self._busy_timeout)
        return (
            Reader(self._files, self._clock, min(self._busy_timeout, _LONGEST_READ_WAIT), self._faults),
            TierFile(self._files.durable, "FULL", self._busy_timeout),
            TierFile(self._files.ephemeral, "OFF", self._busy_timeout),
        )
