"""Batches lookups in the durable tier in Postgres: simultaneous requests of any spaces share one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from baobab.storage.kv.engine import Usage
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.postgres.session import Rows
from baobab.storage.kv.postgres.statements import Place, Statement
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.tiered.durable import LookupRequest, LookupResult

# Values have up to 256 KB, so a result with this many still fits in memory.
_LARGEST_GROUP = 250

# A row without a key describes its space; the others are the requested rows.
_FIND = b"""
SELECT asked.space, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, coalesce(u.frozen, false),
    coalesce(u.keys, 0) - gone.keys, coalesce(u.bytes, 0) - gone.bytes
FROM unnest(%s::text[], %s::boolean[]) AS asked (space, counted)
LEFT JOIN kv.usage AS u ON u.space = asked.space
CROSS JOIN LATERAL (
    SELECT count(*) AS keys, coalesce(sum(length(key) + length(value)), 0)::bigint AS bytes
    FROM kv.entries AS e WHERE asked.counted AND e.space = asked.space AND e.expires <= %s
) AS gone
UNION ALL
SELECT e.space, e.key, e.expires, e."window", e.value, NULL, NULL, NULL
FROM unnest(%s::text[], %s::text[]) AS asked (space, key)
JOIN kv.entries AS e ON e.space = asked.space AND e.key = asked.key
"""


class _QueuedLookup(NamedTuple):
    future: asyncio.Future[LookupResult]
    request: LookupRequest


class LookupBatcher:
    """`rows` runs a statement. One statement runs at a time; requests that arrive meanwhile share the next one."""

    def __init__(self, rows: Callable[[Statement], Awaitable[Rows]], now: Callable[[], int]) -> None:
        self._rows = rows
        self._now = now
        self._queue: list[_QueuedLookup] = []
        self._task: asyncio.Task[None] | None = None

    def look_up(self, request: LookupRequest) -> asyncio.Future[LookupResult]:
        future: asyncio.Future[LookupResult] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedLookup(future, request))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="kv-finder")
        return future

    async def _run(self) -> None:
        while self._queue:
            group = self._take_group()
            try:
                results = await self._fetch_results([waiting.request for waiting in group])
            except Exception as exc:  # noqa: BLE001 - callers must get a result, and the task must survive
                _fail_group(group, exc)
                continue
            for (future, _), result in zip(group, results, strict=True):
                # Done already if the caller was cancelled.
                if not future.done():
                    future.set_result(result)
        self._task = None

    def _take_group(self) -> list[_QueuedLookup]:
        count = places = 0
        for _, request in self._queue:
            places += len(request.keys) + len(request.tokens)
            if count and places > _LARGEST_GROUP:
                break
            count += 1
        group, self._queue = self._queue[:count], self._queue[count:]
        return group

    async def _fetch_results(self, group: list[LookupRequest]) -> list[LookupResult]:
        counted: dict[str, bool] = {}
        for request in group:
            counted[request.space] = counted.get(request.space, False) or request.usage
        places = dict.fromkeys(place for asked in group for place in _list_places(asked))
        answer = await self._rows(
            Statement(
                _FIND,
                (
                    list(counted),
                    list(counted.values()),
                    self._now(),
                    [space for space, _ in places],
                    [key for _, key in places],
                ),
            )
        )
        spaces: dict[str, tuple[bool, Usage]] = {}
        rows: dict[Place, Row] = {}
        for space, key, expires, window, value, frozen, keys, size in answer:
            if key is None:
                spaces[space] = frozen, Usage(keys, size)
            else:
                rows[space, key] = Row(value, expires, window)
        return [_build_result(asked, rows, *spaces[asked.space]) for asked in group]


def _list_places(request: LookupRequest) -> list[Place]:
    return [(request.space, key) for key in request.keys] + [(SPACE, token) for token in request.tokens]


def _build_result(request: LookupRequest, rows: dict[Place, Row], frozen: bool, usage: Usage) -> LookupResult:
    return LookupResult(
        {key: rows[request.space, key] for key in request.keys if (request.space, key) in rows},
        {token: rows[SPACE, token] for token in request.tokens if (SPACE, token) in rows},
        frozen,
        lambda _: usage,
    )


def _fail_group(group: list[_QueuedLookup], cause: Exception) -> None:
    for future, _ in group:
        if not future.done():
            error = StoreUnavailable.because(cause)
            error.__cause__ = cause
            future.set_exception(error)
