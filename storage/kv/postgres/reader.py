"""The connections that read. Rows that are requested at the same time are read with one statement."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from baobab.storage.kv.engine import Tier
from baobab.storage.kv.errors import QueueFull, StoreClosed, StoreUnavailable
from baobab.storage.kv.postgres import statements
from baobab.storage.kv.postgres.session import Rows, Session
from baobab.storage.kv.postgres.statements import Statement, require_text
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Place

# Values have up to 256 KB, so a result with this many still fits in memory.
_LARGEST_GROUP = 250


class _QueuedRead(NamedTuple):
    future: asyncio.Future[Any]
    query: Place | Statement


class Reader:
    def __init__(self, sessions: Sequence[Session], queue_limit: int) -> None:
        self._queue_limit = queue_limit
        self._queue: deque[_QueuedRead] = deque()
        # One for each idle session.
        self._idle: list[asyncio.Future[None]] = []
        self._closing = False
        self._tasks = [asyncio.create_task(self._run(session), name="kv-reader") for session in sessions]

    def row(self, space: str, key: str) -> asyncio.Future[tuple[Tier, Row] | None]:
        """Returns the stored row, expired or not."""
        require_text((space, key))
        return self._submit((space, key))

    def rows(self, statement: Statement) -> asyncio.Future[Rows]:
        return self._submit(statement)

    async def close(self) -> None:
        self._closing = True
        while self._idle:
            self._wake()
        await asyncio.gather(*self._tasks)

    def _submit(self, query: Place | Statement) -> asyncio.Future[Any]:
        if self._closing:
            raise StoreClosed
        if len(self._queue) >= self._queue_limit:
            raise QueueFull
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedRead(future, query))
        # At most one session per event loop iteration, which leaves the next iterations to the others.
        if len(self._queue) == 1:
            self._wake()
        return future

    def _wake(self) -> None:
        if self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)

    async def _run(self, session: Session) -> None:
        while self._queue or not self._closing:
            if not self._queue:
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
                continue
            group = self._take_group()
            if self._queue:
                self._wake()
            try:
                await _answer_group(session, group)
            except Exception as exc:  # noqa: BLE001 - callers must get a result, and the task must survive
                await session.drop()
                _fail(group, exc)
        await session.drop()

    def _take_group(self) -> list[_QueuedRead]:
        """Takes as many rows as are queued in a row, or a single statement, which may be slow."""
        group = [self._queue.popleft()]
        if not isinstance(group[0].query, Statement):
            while self._queue and len(group) < _LARGEST_GROUP and not isinstance(self._queue[0].query, Statement):
                group.append(self._queue.popleft())
        return group


async def _answer_group(session: Session, group: list[_QueuedRead]) -> None:
    first = group[0].query
    if isinstance(first, Statement):
        _resolve(group[0].future, await session.read(first))
        return
    places = {waiting.query: True for waiting in group if not isinstance(waiting.query, Statement)}
    rows = await session.read(statements.rows(places, locked=False))
    rows_by_place = {
        (space, key): (Tier(tier), Row(value, expires, window)) for space, key, tier, _, expires, window, value in rows
    }
    for future, place in group:
        _resolve(future, rows_by_place.get(place))


def _resolve(future: asyncio.Future[Any], result: object) -> None:
    # Done already if the caller was cancelled.
    if not future.done():
        future.set_result(result)


def _fail(group: list[_QueuedRead], cause: Exception) -> None:
    for future, _ in group:
        if not future.done():
            error = StoreUnavailable.because(cause)
            error.__cause__ = cause
            future.set_exception(error)
