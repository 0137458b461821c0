"""Durable transactions of a SQLite file that wait at the same time share a wait for the disk, and nothing else."""

import asyncio
import fcntl
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from baobab.storage.sql.database import DatabaseUnavailable, StatementTimeout
from baobab.storage.sql.sqlite import SqliteDatabase
from baobab.storage.sql.statements import Statements

_ENDLESS = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) "
    "INSERT INTO kept SELECT n, n FROM numbers"
)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path / "rows.db", statement_seconds=0.2)
    await database.open()
    async with database.writing() as connection:
        await connection.execute(text("CREATE TABLE kept (id INTEGER PRIMARY KEY, n INTEGER UNIQUE)"))
    yield database
    await database.close()


@contextmanager
def hold_up(database: SqliteDatabase) -> Iterator[None]:
    """Keeps the writers waiting, as another process would that writes."""
    with database.path.with_suffix(".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def insert(row_id: int, n: int) -> Callable[[Statements], Any]:
    return lambda statements: statements.rows("INSERT INTO kept (id, n) VALUES (?, ?) RETURNING n", row_id, n)


async def run_together(database: SqliteDatabase, *works: Callable[[Statements], Any]) -> list[Any]:
    with hold_up(database):
        tasks = [asyncio.create_task(database.transact(work)) for work in works]
        # Each has come to where it waits.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def read_all(database: SqliteDatabase) -> dict[int, int]:
    async with database.reading() as connection:
        return dict(iter(await connection.execute(text("SELECT id, n FROM kept"))))


def count_commits(database: SqliteDatabase) -> int:
    """The commits in the write-ahead log: the frames that name a size of the database."""
    log = database.path.with_name("rows.db-wal").read_bytes()
    page = int.from_bytes(log[8:12])
    return sum(log[at + 4 : at + 8] != bytes(4) for at in range(32, len(log), 24 + page))


async def test_writers_that_wait_at_the_same_time_share_a_commit(database: SqliteDatabase) -> None:
    before = count_commits(database)
    results = await run_together(database, *(insert(number, number) for number in range(50)))
    assert results == [[(number,)] for number in range(50)]
    assert len(await read_all(database)) == 50
    assert count_commits(database) - before < 5


async def test_one_that_fails_is_rolled_back_alone_and_is_told_why(database: SqliteDatabase) -> None:
    def fail(statements: Statements) -> None:
        statements.rows("INSERT INTO kept (id, n) VALUES (7, 7)")
        raise KeyError("no such thing")

    results = await run_together(database, insert(1, 1), fail, insert(2, 1), insert(3, 3))
    assert [type(result) for result in results] == [list, KeyError, IntegrityError, list]
    assert await read_all(database) == {1: 1, 3: 3}


async def test_one_that_is_stopped_undoes_nothing_of_others(database: SqliteDatabase) -> None:
    # SQLite rolls back the whole transaction of a statement that writes and is stopped.
    results = await run_together(
        database, insert(-1, -1), insert(-2, -2), lambda statements: statements.rows(_ENDLESS), insert(-3, -3)
    )
    assert [type(result) for result in results] == [list, list, StatementTimeout, list]
    assert await read_all(database) == {-1: -1, -2: -2, -3: -3}


async def test_those_whose_commit_fails_all_know_it(database: SqliteDatabase) -> None:
    def break_commit(statements: Statements) -> None:
        statements.rows("INSERT INTO kept (id, n) VALUES (1, 1)")
        # Nothing is left to commit.
        statements.rows("ROLLBACK")

    results = await run_together(database, insert(2, 2), break_commit, insert(3, 3))
    assert [type(result) for result in results] == [list, DatabaseUnavailable, list]
    assert await read_all(database) == {2: 2, 3: 3}


async def test_a_caller_that_is_cancelled_delays_and_undoes_nothing_of_others(database: SqliteDatabase) -> None:
    chance = random.Random(7)
    acknowledged_numbers: set[int] = set()

    async def write(number: int) -> None:
        await database.transact(insert(number, number))
        acknowledged_numbers.add(number)

    for first in range(0, 400, 40):
        tasks = [asyncio.create_task(write(first + index)) for index in range(40)]
        await asyncio.sleep(chance.uniform(0, 0.002))
        for task in chance.sample(tasks, 10):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    rows = await read_all(database)
    assert acknowledged_numbers <= rows.keys()
    assert len(acknowledged_numbers) >= 300
    # Whoever was cancelled may have been on the way to its commit.
    assert rows.keys() <= set(range(400))


async def test_each_sees_what_those_before_it_wrote(database: SqliteDatabase) -> None:
    def increment(statements: Statements) -> int:
        statements.rows("INSERT INTO kept (id, n) VALUES (1, 0) ON CONFLICT DO NOTHING")
        [(n,)] = statements.rows("SELECT n FROM kept WHERE id = 1")
        statements.rows("UPDATE kept SET n = ? WHERE id = 1", n + 1)
        return int(n)

    assert sorted(await asyncio.gather(*(database.transact(increment) for _ in range(200)))) == list(range(200))
    assert await read_all(database) == {1: 200}
