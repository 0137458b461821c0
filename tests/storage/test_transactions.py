"""Transactions that one function makes: whole or not at all, whoever else is writing, by text on either database."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Column, Date, Integer, MetaData, String, Table, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.statements import Statements
from baobab.storage.sql.tables import Instant
from tests.backends import database_url, release_data

_COUNT = "SELECT n FROM counted locked WHERE name IN ? FOR NO KEY UPDATE OF locked"

counted_table = Table(
    "counted",
    MetaData(),
    Column("name", String(40), primary_key=True),
    Column("n", Integer, nullable=False),
    Column("day", Date),
    Column("at", Instant),
)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield database_url(tmp_path)
    release_data(tmp_path)


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = database_at(url)
    await database.open()
    async with database.writing() as connection:
        await connection.run_sync(counted_table.create)
        await connection.execute(insert(counted_table), [{"name": name, "n": 0} for name in "abcdefg"])
    yield database
    async with database.writing() as connection:
        await connection.run_sync(counted_table.drop)
    await database.close()


@pytest.fixture(params=[True, False], ids=["durable", "not waiting for the disk"])
def durable(request: pytest.FixtureRequest) -> bool:
    is_durable: bool = request.param
    return is_durable


async def read_sum(database: Database) -> int:
    async with database.reading() as connection:
        return int(await connection.scalar(select(func.sum(counted_table.c.n))) or 0)


def increment(statements: Statements) -> int:
    """One more on `a`, read first and written then."""
    ((number,),) = statements.rows(_COUNT, ["a"])
    statements.rows("UPDATE counted SET n = ? WHERE name = ?", number + 1, "a")
    return int(number)


async def test_what_was_done_is_there_for_everybody(database: Database, *, durable: bool) -> None:
    assert await database.transact(increment, durable=durable) == 0
    assert await database.transact(increment, durable=durable) == 1
    assert await read_sum(database) == 2


async def test_what_fails_leaves_nothing_and_the_next_one_in(database: Database, *, durable: bool) -> None:
    def failing(statements: Statements) -> None:
        increment(statements)
        raise LookupError

    def break_statement(statements: Statements) -> None:
        increment(statements)
        statements.rows("SELECT n FROM nowhere")

    def twice(statements: Statements) -> None:
        increment(statements)
        statements.execute_many("INSERT INTO counted (name, n) VALUES (?, ?)", [("z", 1), ("z", 2)])

    for _ in range(2):
        with pytest.raises(LookupError):
            await database.transact(failing, durable=durable)
        with pytest.raises(IntegrityError):
            await database.transact(twice, durable=durable)
        with pytest.raises(DatabaseUnavailable):
            await database.transact(break_statement, durable=durable)
    assert await database.transact(increment, durable=durable) == 0


async def test_no_update_is_lost_among_all_ways_of_writing(database: Database, url: str) -> None:
    other = database_at(url)
    await other.open()

    async def by_a_unit() -> None:
        unit = database.build_unit(write=True)
        await unit.execute(text("UPDATE counted SET n = n + 1 WHERE name = 'a'"))
        await unit.commit()

    each = [(one, durable) for one in (database, other) for durable in (True, False)] * 20
    running = [one.transact(increment, durable=durable) for one, durable in each]
    await asyncio.gather(*running, *[by_a_unit() for _ in range(20)])
    await other.close()
    assert await read_sum(database) == 100


async def test_who_finds_the_turn_taken_waits_for_it(database: Database) -> None:
    await database.transact(increment, durable=False)
    async with database.writing() as connection:
        await connection.execute(text("UPDATE counted SET n = 10 WHERE name = 'a'"))
        waiting = asyncio.create_task(database.transact(increment, durable=False))
        await asyncio.sleep(0)
        assert await connection.scalar(text("SELECT n FROM counted WHERE name = 'a'")) == 10
    assert await waiting == 10


async def test_a_caller_who_is_cancelled_hears_of_it_when_the_transaction_is_over(
    database: Database, *, durable: bool
) -> None:
    for moments in range(1, 10):
        async with database.writing() as connection:
            await connection.execute(text("UPDATE counted SET n = n WHERE name = 'a'"))
            asking = asyncio.create_task(database.transact(increment, durable=durable))
            for _ in range(moments):
                await asyncio.sleep(0)
            # Twice, as whoever waits for its end may be cancelled, too.
            for _ in range(2):
                asking.cancel()
                await asyncio.sleep(0)
            assert not asking.done()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await read_sum(database) == moments


async def test_lists_of_any_length_and_moments_are_kept_as_the_tables_keep_them(database: Database) -> None:
    now, day = datetime(2026, 11, 21, 12, 0, tzinfo=timezone(timedelta(hours=2))), date(2026, 11, 21)

    def work(statements: Statements) -> list[int]:
        statements.execute_many(
            "UPDATE counted SET n = ?, day = ?, at = ? WHERE name = ?", [(1, day, now, name) for name in "abcdefg"]
        )
        lists = [list("abcdefg"[:length]) for length in range(8)]
        return [len(statements.rows("SELECT n FROM counted WHERE name IN ? AND at <= ?", some, now)) for some in lists]

    assert await database.transact(work) == list(range(8))
    async with database.reading() as connection:
        rows = (await connection.execute(select(counted_table.c.day, counted_table.c.at).distinct())).all()
    assert [tuple(row) for row in rows] == [(day, now.astimezone(UTC))]


async def test_a_file_that_is_none_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "rows.db").write_bytes(b"no database" * 1000)
    database = database_at(f"sqlite:///{tmp_path / 'rows.db'}")
    with pytest.raises(DatabaseUnavailable):
        await database.open()
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            await database.transact(increment)
    await database.close()


async def test_what_is_closed_is_unavailable(tmp_path: Path) -> None:
    database = database_at(f"sqlite:///{tmp_path / 'rows.db'}")
    await database.open()
    await database.close()
    await database.close()
    with pytest.raises(DatabaseUnavailable):
        await database.transact(increment)
