"""The rows: turns, units and what a failure leaves behind."""

import asyncio
import contextlib
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Date,
    Executable,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    table,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, MultipleResultsFound, NoResultFound, StatementError

from baobab.storage.sql.database import Database, DatabaseUnavailable, Unit
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.sqlite import SqliteDatabase
from baobab.storage.sql.tables import Instant, Json
from tests.backends import database_url, release_data
from tests.servers import TIMEOUT_SECONDS

_INCREMENT = """
import asyncio, sys
from sqlalchemy import delete, table, text
from baobab.storage.sql.databases import database_at


async def main():
    database = database_at(sys.argv[1])
    await database.open()
    for _ in range(50):
        async with database.writing() as connection:
            number = await connection.scalar(text("SELECT n FROM counter"))
            await connection.execute(text("UPDATE counter SET n = :n"), {"n": number + 1})
    await database.close()

asyncio.run(main())
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield database_url(tmp_path)
    release_data(tmp_path)


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = database_at(url)
    await database.open()
    async with database.writing() as connection:
        await connection.execute(text("CREATE TABLE counter (n INTEGER NOT NULL CHECK (n < 100000))"))
        await connection.execute(text("INSERT INTO counter VALUES (0)"))
    yield database
    async with database.writing() as connection:
        await connection.execute(text("DROP TABLE counter"))
    await database.close()


async def _read_number(database: Database) -> int:
    async with database.reading() as connection:
        return int(await connection.scalar(text("SELECT n FROM counter")) or 0)


async def test_reading_then_writing_loses_no_update_among_many_callers(database: Database) -> None:
    async def increment() -> None:
        unit = database.build_unit(write=True)
        number = (await unit.execute(text("SELECT n FROM counter"))).scalar_one()
        await asyncio.sleep(0)
        await unit.execute(text("UPDATE counter SET n = :n"), {"n": number + 1})
        await unit.commit()

    await asyncio.gather(*(increment() for _ in range(100)))
    assert await _read_number(database) == 100


async def test_nor_among_processes(database: Database, url: str) -> None:
    command = [sys.executable, "-c", _INCREMENT, url]
    children = [await asyncio.to_thread(subprocess.Popen, command) for _ in range(3)]
    assert [await asyncio.to_thread(child.wait) for child in children] == [0, 0, 0]
    assert await _read_number(database) == 150


async def test_a_unit_that_is_rolled_back_leaves_nothing_and_lets_the_next_one_in(database: Database) -> None:
    unit = database.build_unit(write=True)
    calls: list[str] = []
    unit.after_commit(lambda: calls.append("after"))
    await unit.execute(text("UPDATE counter SET n = 7"))
    await unit.rollback(ValueError("no"))
    assert await _read_number(database) == 0
    assert calls == []
    async with database.writing() as connection:
        await connection.execute(text("UPDATE counter SET n = 8"))
    assert await _read_number(database) == 8


async def test_what_waits_for_the_commit_happens_after_it_and_once(database: Database) -> None:
    unit = database.build_unit(write=True)
    calls: list[str] = []
    unit.after_commit(lambda: calls.append("after"))
    await unit.execute(text("UPDATE counter SET n = 1"))
    assert calls == []
    await unit.commit()
    await unit.commit()
    assert calls == ["after"]


async def test_a_unit_without_statements_costs_no_transaction(database: Database) -> None:
    async with database.writing():
        # Were it to begin one, it would wait here for ever.
        await asyncio.wait_for(database.build_unit(write=True).commit(), 1)


async def test_a_cancelled_writer_gives_its_turn_back(database: Database) -> None:
    async def hold() -> None:
        async with database.writing() as connection:
            await connection.execute(text("UPDATE counter SET n = 5"))
            await asyncio.sleep(60)

    task = asyncio.create_task(hold())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _read_number(database) == 0
    async with database.writing() as connection:
        await connection.execute(text("UPDATE counter SET n = 6"))
    assert await _read_number(database) == 6


async def test_whenever_callers_are_cancelled_nothing_of_theirs_stays_open_and_the_next_one_writes_at_once(
    database: Database,
) -> None:
    dice = random.Random(7)

    async def write() -> None:
        async with database.writing() as connection:
            await connection.execute(text("UPDATE counter SET n = n + 1"))
            await connection.execute(text("SELECT n FROM counter"))

    async def read() -> None:
        async with database.reading() as connection:
            await connection.execute(text("SELECT n FROM counter"))

    for _ in range(150):
        tasks = [asyncio.create_task(dice.choice([read, write])()) for _ in range(dice.randrange(1, 4))]
        await asyncio.sleep(dice.random() * 0.004)
        for _ in range(dice.randrange(1, 3)):
            # Whoever is cancelled may be cancelled again while it tidies up.
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await write()


async def test_what_waits_for_the_commit_happens_though_the_caller_is_cancelled_in_the_middle_of_it(
    database: Database,
) -> None:
    calls: list[str] = []

    async def write(moment: float) -> None:
        async with database.writing_unit() as unit:
            unit.after_commit(lambda: calls.append("after"))
            await unit.execute(text("UPDATE counter SET n = n + 1"))
            asyncio.get_running_loop().call_later(moment, asyncio.current_task().cancel)  # type: ignore[union-attr]

    for number in range(40):
        await asyncio.gather(write(number * 0.0001), return_exceptions=True)
        # Committed, then followed; or neither.
        assert await _read_number(database) == len(calls)


async def test_a_writer_that_is_cancelled_while_it_waits_for_another_process_does_not_keep_the_turn(
    database: Database, url: str
) -> None:
    others = [database_at(url), database_at(url)]
    for other in others:
        await other.open()

    async def write(into: Database) -> None:
        async with into.writing() as connection:
            await connection.execute(text("UPDATE counter SET n = n + 1"))

    async with database.writing():
        waiting = asyncio.create_task(write(others[0]))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await write(others[1])
    assert await _read_number(database) == 1
    for other in others:
        await other.close()


async def test_more_readers_than_connections_at_once_are_all_served(database: Database) -> None:
    for _ in range(3):
        assert await asyncio.gather(*(_read_number(database) for _ in range(40))) == [0] * 40


async def test_a_read_that_takes_long_does_not_stop_the_event_loop(database: Database) -> None:
    """On files it is stopped and made again in a thread."""
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT max(i) FROM n"

    async def read_long() -> int:
        async with database.reading() as connection:
            return int(await connection.scalar(text(count)) or 0)

    task = asyncio.create_task(read_long())
    short = 0
    while not task.done():
        await _read_number(database)
        await asyncio.sleep(0)
        short += 1
    assert await task == 3000000
    assert short > 10


async def test_a_short_read_runs_once_however_often_it_has_run_before(database: Database) -> None:
    """SQLite counts the steps of a statement over all its executions. One that is stopped runs again in a thread."""
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT max(i) FROM n"
    calls = 0

    def read(connection: Connection) -> None:
        nonlocal calls
        calls += 1
        connection.execute(text(count))

    for _ in range(50):
        async with database.reading() as connection:
            await connection.run_sync(read)
    assert calls == 50


async def test_a_deletion_of_very_many_rows_does_not_stop_the_event_loop(database: Database) -> None:
    fill = """
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
        INSERT INTO counter SELECT 1 FROM n"""
    async with database.writing(bulk=True) as connection:
        await connection.execute(text(fill))
        await connection.execute(text("DELETE FROM counter WHERE n = 0"))
    async with database.writing() as connection:
        deleting = asyncio.create_task(connection.execute(delete(table("counter"))))
        turns = 0
        while not deleting.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await deleting).rowcount == 400000
    assert turns > 10


_counter = table("counter", Column("n", Integer))
_everything = Table(
    "everything",
    MetaData(),
    Column("id", String(10), primary_key=True),
    Column("said", Json),
    Column("at", Instant),
    Column("day", Date),
    Column("flag", Boolean),
    Column("raw", LargeBinary),
    Column("size", Float),
    Column("given", Integer, default=7),
)


async def test_what_is_written_unread_and_fetched_is_what_is_executed(database: Database) -> None:
    """Whatever the types of its columns, whether SQLAlchemy fills some in, and however often it is written and read."""
    full = {"said": {"é": [None, True, "東"]}, "at": datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))}
    full |= {"day": date(2026, 5, 1), "flag": True, "raw": b"\x00\xff", "size": 1.5}
    rows: list[dict[str, Any]] = [
        *({**full, "given": given_number} for given_number in (1, None)),
        dict.fromkeys(("said", "at", "day", "flag", "raw", "size", "given")),
        full,
        {},
    ]
    insertion = insert(_everything)
    change = update(_everything).where(_everything.c.id == bindparam("of_id")).values(said=bindparam("to_said"))
    try:
        async with database.writing() as connection:
            await connection.run_sync(_everything.create)
        async with database.writing_unit() as unit:
            for number, row in enumerate([*rows, *rows]):
                await unit.write(insertion, {"id": f"w{number}", **row})
                await unit.execute(insert(_everything), {"id": f"x{number}", **row})
                if number % 2:
                    await unit.write(change, {"of_id": f"w{number}", "to_said": [number]})
                    await unit.execute(change, {"of_id": f"x{number}", "to_said": [number]})
        async with database.reading() as connection:
            stored_rows = (await connection.execute(select(_everything).order_by(_everything.c.id))).all()
        query = select(_everything).where(_everything.c.id >= bindparam("from_id"), _everything.c.id < "y")
        query = query.order_by(_everything.c.id)
        for from_id in ("", "x", "y"):
            async with database.writing_unit() as unit:
                fetched_rows = (await unit.execute(query, {"from_id": from_id})).all()
            rows_fetched_once = (await database.execute(query, {"from_id": from_id})).all()
            for rows_read in (fetched_rows, rows_fetched_once):
                assert [row._mapping for row in rows_read] == [row._mapping for row in stored_rows if row.id >= from_id]
        values_by_id = {row.id: row[1:] for row in stored_rows}
        assert len(values_by_id) == 4 * len(rows)
        assert [values_by_id[f"w{number}"] for number in range(10)] == [
            values_by_id[f"x{number}"] for number in range(10)
        ]
        with pytest.raises(IntegrityError):
            async with database.writing_unit() as unit:
                await unit.write(insertion, {"id": "w0", **full, "given": 1})
        assert len(await _read_all(database)) == len(stored_rows)
    finally:
        async with database.writing() as connection:
            await connection.execute(text("DROP TABLE IF EXISTS everything"))


_READINGS: list[Callable[[Any], Any]] = [
    lambda result: [tuple(row) for row in result],
    lambda result: result.all(),
    lambda result: result.first(),
    lambda result: result.one(),
    lambda result: result.one_or_none(),
    lambda result: result.scalar(),
    lambda result: result.scalar_one(),
    lambda result: result.scalar_one_or_none(),
    lambda result: result.scalars().all(),
    lambda result: result.mappings().all(),
    lambda result: result.mappings().first(),
    lambda result: [row[_counter.c.n] for row in result.mappings()],
    lambda result: [(row.n, row[0], row._asdict(), row._fields) for row in result],
]


async def read_or_fail(database: Database, query: Executable, least: int, reading: Callable[[Any], Any]) -> Any:
    async with database.reading() as connection:
        try:
            return reading(await connection.execute(query, {"least": least}))
        except (NoResultFound, MultipleResultsFound) as exc:
            return type(exc)


@pytest.mark.parametrize("reading", range(len(_READINGS)))
async def test_a_result_is_read_in_the_same_ways_however_often_its_statement_has_run(
    database: Database, reading: int
) -> None:
    query = select(_counter.c.n, _counter.c.n.label("again")).where(_counter.c.n >= bindparam("least"))
    twice = query.union_all(query.where(_counter.c.n >= 0)).order_by("n")
    few = select(_counter.c.n).where(_counter.c.n >= bindparam("least"))
    for statement in (twice, few):
        for least in (0, 1):
            answers = [await read_or_fail(database, statement, least, _READINGS[reading]) for _ in range(4)]
            assert answers[1:] == answers[:1] * 3


async def test_a_change_tells_how_many_rows_it_has_changed_and_returns_them_however_often_it_has_run(
    database: Database,
) -> None:
    more = update(_counter).where(_counter.c.n < bindparam("end")).values(n=_counter.c.n + bindparam("by"))
    returning = more.returning(_counter.c.n)
    async with database.writing_unit() as unit:
        for _ in range(4):
            assert (await unit.execute(more, {"by": 1, "end": 100})).rowcount == 1
            assert (await unit.execute(more, {"by": 1, "end": -1})).rowcount == 0
    answers = []
    for _ in range(4):
        answers.append((await database.write(returning, {"by": 1, "end": 100})).scalars().all())
        assert (await database.write(returning, {"by": 1, "end": -1})).all() == []
    assert answers == [[5], [6], [7], [8]]


async def test_a_value_that_is_missing_is_an_error_however_often_a_statement_has_run(database: Database) -> None:
    above = select(_counter.c.n).where(_counter.c.n >= bindparam("least"))
    async with database.reading() as connection:
        for _ in range(3):
            with pytest.raises(StatementError, match="A value is required for bind parameter 'least'"):
                await connection.execute(above, {"other": 1})
            assert (await connection.execute(above, {"least": 0})).scalar() == 0


async def test_queries_that_are_sent_together_see_what_the_unit_has_written_before(database: Database) -> None:
    more = update(_counter).where(_counter.c.n >= bindparam("least")).values(n=_counter.c.n + bindparam("by"))
    all_of_it, count = select(_counter.c.n), select(func.count()).select_from(_counter)
    below = select(_counter.c.n).where(_counter.c.n < bindparam("end"))
    for _ in range(8):
        async with database.writing_unit() as unit:
            assert (await unit.execute(more, {"least": 0, "by": 2})).rowcount == 1
            assert (await unit.execute(more, {"least": 90_000, "by": 2})).rowcount == 0
            await unit.write(more, {"least": 0, "by": -1})
            all_rows, row_count, no_rows = await unit.execute_all((all_of_it, {}), (count, {}), (below, {"end": 0}))
            assert (row_count.scalar(), no_rows.all()) == (1, [])
    assert (all_rows.scalar_one(), await _read_number(database)) == (8, 8)


async def test_a_query_that_fails_among_those_sent_together_undoes_the_unit(database: Database) -> None:
    more = update(_counter).values(n=_counter.c.n + bindparam("by"))
    missing = select(table("nowhere", Column("n", Integer)).c.n)

    async def change_and(ask: Callable[[Unit], Awaitable[object]]) -> None:
        async with database.writing_unit() as unit:
            await unit.execute(more, {"by": 1})
            await ask(unit)

    for _ in range(8):
        with pytest.raises(DatabaseUnavailable):
            await change_and(lambda unit: unit.execute_all((select(_counter.c.n), {}), (missing, {}), (missing, {})))
        with pytest.raises(IntegrityError):
            await change_and(lambda unit: unit.execute(more, {"by": 200_000}))
    assert await _read_number(database) == 0


async def test_of_many_reads_at_once_each_gets_its_own_rows(database: Database) -> None:
    above = select(_counter.c.n + bindparam("by", type_=Integer)).where(_counter.c.n < bindparam("end"))
    for _ in range(8):
        reads = [database.execute(above, {"by": number, "end": number}) for number in range(100)]
        answers = [[row[0] for row in rows] for rows in await asyncio.gather(*reads)]
        assert answers == [[], *([number] for number in range(1, 100))]


async def _read_all(database: Database) -> list[Any]:
    async with database.reading() as connection:
        return list((await connection.execute(select(_everything.c.id))).all())


async def test_a_broken_constraint_is_the_callers_to_understand(database: Database) -> None:
    with pytest.raises(IntegrityError):
        async with database.writing() as connection:
            await connection.execute(text("UPDATE counter SET n = 100000"))


async def test_an_error_of_a_statement_does_not_tell_what_was_sent_with_it(database: Database) -> None:
    with pytest.raises(IntegrityError) as error_info:
        async with database.writing() as connection:
            await connection.execute(text("UPDATE counter SET n = :n"), {"n": 123456789})
    assert "[parameters" not in str(error_info.value)


async def test_a_database_that_cannot_be_read_is_unavailable_in_one_word(tmp_path: Path) -> None:
    path = tmp_path / "broken.db"
    path.write_bytes(b"this is no database" * 100)
    database = SqliteDatabase(path)
    with pytest.raises(DatabaseUnavailable):
        await database.open()
    await database.close()


async def test_a_writer_that_is_cancelled_while_a_stranger_to_our_locks_writes_leaves_no_transaction(
    tmp_path: Path,
) -> None:
    """Somebody has opened the file with another program, say."""
    database = SqliteDatabase(tmp_path / "rows.db")
    await database.open()
    stranger = sqlite3.connect(tmp_path / "rows.db", isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")

    async def write(number: int) -> None:
        async with database.writing() as connection:
            await connection.execute(text(f"CREATE TABLE made_{number} (n INTEGER)"))

    cancelled_task, patient_task = asyncio.create_task(write(1)), asyncio.create_task(write(2))
    # Reads go on meanwhile.
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM sqlite_master")) == 0
    cancelled_task.cancel()
    stranger.execute("COMMIT")
    stranger.close()
    await patient_task
    with pytest.raises(asyncio.CancelledError):
        await cancelled_task
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM sqlite_master")) == 1
    await database.close()


async def test_however_many_transactions_a_connection_has_begun_the_next_one_begins(tmp_path: Path) -> None:
    """SQLite counts the steps of a prepared statement over all its executions: a bound on them must not stop BEGIN."""
    database = SqliteDatabase(tmp_path / "baobab.db")
    await database.open()
    for _ in range(20_000):
        with contextlib.suppress(asyncio.CancelledError):
            async with database.writing():
                # Rolled back, which does not wait for the disk.
                raise asyncio.CancelledError
    await database.close()
