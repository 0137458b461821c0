"""Whoever holds a connection of a database must not wait for another one of the same: the tests hold everybody to it.

As many callers as there are connections would wait for each other, until each is told that the database is silent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from baobab.storage import cancellation
from baobab.storage.sql.database import Database, DatabaseConnection
from baobab.storage.sql.postgres import PostgresDatabase
from baobab.storage.sql.sqlite import SqliteDatabase

_DATABASES_BY_TASK: WeakKeyDictionary[asyncio.Task[Any], list[Database]] = WeakKeyDictionary()


def hold_one_connection_at_a_time(patch: pytest.MonkeyPatch) -> None:
    for kind in (SqliteDatabase, PostgresDatabase):
        for name in ("reading", "writing"):
            patch.setattr(kind, name, _limit_to_one(getattr(kind, name)))
        patch.setattr(kind, "execute", _limit_call_to_one(kind.execute))
    # SQLite's is made of the others.
    patch.setattr(PostgresDatabase, "write", _limit_call_to_one(PostgresDatabase.write))
    patch.setattr(cancellation, "ensure_future", _share_with_waiter)


def _share_with_waiter(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task for which another does nothing but wait: what the one holds, both hold."""
    task, waiting = asyncio.ensure_future(work), asyncio.current_task()
    if waiting is not None:
        _DATABASES_BY_TASK[task] = _DATABASES_BY_TASK.setdefault(waiting, [])
    return task


def _limit_call_to_one(way: Callable[..., Any]) -> Callable[..., Any]:
    async def hold_connection(database: Database, /, *arguments: Any) -> Any:
        with _hold(database):
            return await way(database, *arguments)

    return hold_connection


def _limit_to_one(way: Callable[..., Any]) -> Callable[..., Any]:
    @asynccontextmanager
    async def hold_connection(database: Database, /, **options: bool) -> AsyncIterator[DatabaseConnection]:
        with _hold(database):
            async with way(database, **options) as connection:
                yield connection

    return hold_connection


@contextmanager
def _hold(database: Database) -> Iterator[None]:
    task = asyncio.current_task()
    assert task is not None
    # Given back by another task, maybe: whoever commits is not cancelled in the middle of it.
    databases = _DATABASES_BY_TASK.setdefault(task, [])
    assert database not in databases, "this caller has a connection to the same database already"
    databases.append(database)
    try:
        yield
    finally:
        databases.remove(database)
