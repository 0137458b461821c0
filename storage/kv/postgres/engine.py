"""The engine on Postgres, for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
import copy
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self, TypeVar

import psycopg

from baobab.storage.kv import expiry, operations, page
from baobab.storage.kv.engine import ABSENT, Absent, Entry, Op, OpResult, Quota, Tier, Usage
from baobab.storage.kv.errors import StoreClosed, StoreUnavailable
from baobab.storage.kv.idempotency import SPACE, attempt_tokens, make_idempotent
from baobab.storage.kv.postgres import schema, statements
from baobab.storage.kv.postgres.reader import Reader
from baobab.storage.kv.postgres.session import Rows, Session
from baobab.storage.kv.postgres.statements import Statement
from baobab.storage.kv.postgres.transaction import PostgresTransaction
from baobab.storage.kv.postgres.writer import WriteJob, Writer
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Place, Transaction

T = TypeVar("T")


class _OpenConnections(NamedTuple):
    reader: Reader
    writers: list[Writer]


class PostgresEngine:
    """Belongs to the event loop that opens it. `url` is libpq's: postgresql://user@host/database.

    Both tiers are in one table, with the tier as a column: a key moves in one statement, and the totals always match
    the entries, which they would not if a crash emptied an unlogged table. The ephemeral tier differs in its commit. A
    group that touches only that tier is acknowledged before it is on disk; a crash of Postgres or its machine may lose
    the last such groups, some tenths of a second of them, each as a whole.

    A write that raises StoreUnavailable was not applied, with one exception: if the connection breaks after COMMIT was
    sent, the outcome is unknown. The write is then applied as a whole or not at all, and if the server was frozen,
    perhaps a moment later. `for_attempt` makes such a write safe to repeat: the next attempt waits until the last one
    is decided.

    The writes of a space keep their order: in each process they share one connection. Expiry uses the clock of the
    calling process, so the clocks of several machines should agree.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        *,
        writers: int = 2,
        readers: int = 1,
        timeout: float = 5.0,
        queue_limit: int = 10_000,
    ) -> None:
        self._url = url
        self._clock = clock
        self._writers = writers
        self._readers = readers
        self._timeout = timeout
        self._queue_limit = queue_limit
        self._connections: _OpenConnections | None = None
        self._tokens: Iterator[str] | None = None

    async def open(self) -> None:
        first = Session(self._url, self._timeout)
        try:
            await schema.prepare(await first.connect())
        except psycopg.Error as exc:
            raise StoreUnavailable.because(exc) from exc
        finally:
            await first.drop()
        self._connections = _OpenConnections(
            Reader([Session(self._url, self._timeout) for _ in range(self._readers)], self._queue_limit),
            [Writer(Session(self._url, self._timeout), self._clock, self._queue_limit) for _ in range(self._writers)],
        )

    async def close(self) -> None:
        if self._connections is None:
            return
        opened_connections, self._connections = self._connections, None
        await asyncio.gather(
            opened_connections.reader.close(), *(writer.close() for writer in opened_connections.writers)
        )

    def for_attempt(self, token: str) -> Self:
        view = copy.copy(self)
        view._tokens = attempt_tokens(token)  # noqa: SLF001 - a copy of ourselves
        return view

    async def has_written(self, space: str, token: str) -> bool:
        return await self._find_live(SPACE, next(attempt_tokens(token))) is not None

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        entry = await self._find_live(space, key)
        if entry is None:
            return None
        tier, row = entry
        if touch and tier is Tier.DURABLE and row.window is not None:
            job = WriteJob(
                lambda transaction: operations.touch(transaction, space, key), space, ((space, key),), alone=False
            )
            touched_value: bytes | None = await self._select_writer(space).submit(job)
            return touched_value
        return row.value

    async def ttl(self, space: str, key: str) -> int | Absent | None:
        entry = await self._find_live(space, key)
        if entry is None:
            return ABSENT
        expires = entry[1].expires
        return None if expires is None else expiry.seconds_left(expires, self._now)

    async def exists(self, space: str, key: str) -> bool:
        return await self._find_live(space, key) is not None

    async def put(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> None:
        await self._write(
            space,
            [key],
            lambda transaction: operations.put(transaction, space, key, value, ttl, tier, quota),
            blind=True,
        )

    async def delete(self, space: str, key: str) -> int:
        return await self._write(
            space, [key], lambda transaction: operations.delete(transaction, space, key), blind=True
        )

    async def incr(self, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
        return await self._write(
            space, [key], lambda transaction: operations.incr(transaction, space, key, by, ttl, quota), alone=False
        )

    async def setnx(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> bool:
        return await self._write(
            space, [key], lambda transaction: operations.setnx(transaction, space, key, value, ttl, tier, quota)
        )

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
            space,
            [key],
            lambda transaction: operations.cas(transaction, space, key, expected, next, ttl, quota),
            alone=False,
        )

    async def expire(self, space: str, key: str, ttl: int | None) -> bool:
        return await self._write(
            space, [key], lambda transaction: operations.expire(transaction, space, key, ttl), alone=False
        )

    async def batch(self, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
        keys = [op.key for op in ops]
        return await self._write(space, keys, lambda transaction: operations.batch(transaction, space, ops, quota))

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        rows = await self._fetch_rows(statements.keys(space, prefix, cursor, self._now, limit + 1))
        return page.cut([key for (key,) in rows], limit)

    async def usage(self, space: str) -> Usage:
        [usage_row] = await self._fetch_rows(statements.usage(space, self._now))
        return Usage(*usage_row)

    async def flush(self, space: str) -> int:
        return await self._write(space, [], lambda transaction: operations.flush(transaction, space))

    async def sweep(self, limit: int = 1000) -> int:
        rows = await self._fetch_rows(statements.some_expired(self._now, limit))
        spaces: dict[str, list[str]] = {}
        for space, key in rows:
            spaces.setdefault(space, []).append(key)
        return sum(await asyncio.gather(*(self._remove_expired(space, keys) for space, keys in spaces.items())))

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        return [space for (space,) in await self._fetch_rows(statements.spaces(after or "", self._now, limit))]

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        rows = await self._fetch_rows(statements.entries(space, after or "", self._now, limit))
        return [Entry(key, value, Tier(tier), expires, window) for key, value, tier, expires, window in rows]

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        places = tuple((space, entry.key) for entry in entries)
        await self._write_unbounded(space, lambda transaction: operations.load(transaction, space, entries), places)

    async def freeze(self, space: str) -> None:
        await self._write_unbounded(space, lambda transaction: transaction.freeze(space))

    async def thaw(self, space: str) -> None:
        await self._write_unbounded(space, lambda transaction: transaction.thaw(space))

    async def erase(self, space: str) -> None:
        await self._write_unbounded(space, lambda transaction: operations.erase(transaction, space))

    async def check(self) -> None:
        await self._fetch_rows(statements.usage("", self._now))
        await asyncio.gather(*(writer.submit(WriteJob(lambda _: None)) for writer in self._require_open().writers))

    async def _find_live(self, space: str, key: str) -> tuple[Tier, Row] | None:
        entry = await self._require_open().reader.row(space, key)
        return entry if entry is not None and expiry.is_live(entry[1].expires, self._now) else None

    def _fetch_rows(self, statement: Statement) -> asyncio.Future[Rows]:
        return self._require_open().reader.rows(statement)

    def _write(
        self,
        space: str,
        keys: Sequence[str],
        write: Callable[[Transaction], T],
        *,
        alone: bool = True,
        blind: bool = False,
    ) -> asyncio.Future[T]:
        places = [(space, key) for key in keys]
        if self._tokens is not None:
            token = next(self._tokens)
            write = make_idempotent(token, write)
            places.append((SPACE, token))
            # If two attempts run at once, the later one reads the token after the earlier one has released the space.
            alone = True
        return self._select_writer(space).submit(WriteJob(write, space, tuple(places), alone, blind))

    async def _write_unbounded(
        self, space: str, write: Callable[[Transaction], None], places: tuple[Place, ...] = ()
    ) -> None:
        await self._select_writer(space).submit(WriteJob(write, space, places, blind=True))

    async def _remove_expired(self, space: str, keys: list[str]) -> int:
        def write(transaction: PostgresTransaction) -> int:
            return transaction.remove_expired(space, keys)

        places = tuple((space, key) for key in keys)
        removed_count: int = await self._select_writer(space).submit(WriteJob(write, space, places, blind=True))
        return removed_count

    @property
    def _now(self) -> int:
        return expiry.milliseconds(self._clock())

    def _select_writer(self, space: str) -> Writer:
        writers = self._require_open().writers
        return writers[zlib.crc32(space.encode()) % len(writers)]

    def _require_open(self) -> _OpenConnections:
        if self._connections is None:
            raise StoreClosed
        return self._connections
