"""The walls around a statement, tried without the code that writes statements anew: what a mistake in it would let
through is refused by the database all the same.
"""

# ruff: noqa: S608 - statements of SQL, each in one line

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from baobab.storage.data.row_security import SqlRole
from baobab.storage.data.store import DataStore
from baobab.storage.sql.confinement import Confinement
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.statements import Statements
from tests.tools.data.conftest import ADA, BEN, Tables
from tests.tools.data.test_sql import run

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFIX = "_b_of_this_test_"
NOTES: dict[str, Any] = {"columns": {"id": {"type": "integer", "primaryKey": True}, "user_id": "uuid", "body": "text"}}
ON_FILES = (
    "select * from notes",
    "select count(*) from notes",
    "with notes as (select * from main.notes) select * from notes",
    "with x as (select * from notes) select * from x",
    "select * from _catalogue",
    f"with {PREFIX}0 as (select * from _catalogue) select * from {PREFIX}0",
    f"with {PREFIX}0 as (select * from sqlite_master) select count(*) from {PREFIX}0",
    "select * from sqlite_master",
    "select * from pragma_table_info('notes')",
    "pragma table_info(notes)",
    "pragma writable_schema = on",
    "attach ':memory:' as x",
    "create temp table x (a)",
    "create temp trigger t after insert on notes begin select 1; end",
    "delete from notes",
    "update notes set body = 'x'",
    "insert into notes (id) values (9)",
    "insert into _usage values ('x', 0)",
    "drop table notes",
    "savepoint a",
    "vacuum",
    "select load_extension('x')",
    "select randomblob(1000000000)",
    "select zeroblob(1000000000)",
    "select sqlite_version()",
    "select printf('%100000000d', 1)",
)


async def find_store(tables: Tables) -> DataStore:
    services = tables.world.application.services
    return services.stores_of((await services.directory.app(tables.app.id)).region).data


async def send(tables: Tables, text: str, role: SqlRole = "sql", seconds: float = 2.0) -> Sequence[Any]:
    """Runs a text in the database as it is, confined as a statement would be."""
    store = await find_store(tables)
    identity = None
    if store.row_security is not None:
        identity = store.row_security.become_sql(
            tables.app.id, role, ADA, "user", "2026-01-01T00:00:00+00:00", seconds=seconds
        )
    tables_of_app, functions = frozenset({"notes"}), frozenset({"lower", "count"})
    confinement = Confinement(PREFIX, tables_of_app, frozenset(), functions, seconds, 2**20, identity)

    def work(statements: Statements) -> Sequence[Any]:
        with statements.confine(confinement):
            return statements.rows(text)

    return await store.read(tables.app.id, work)


@pytest.fixture
async def notes(tables: Tables) -> Tables:
    await tables.apply({"notes": NOTES})
    await tables.policy("notes", "own", using_expression="user_id = current_user_id()", role="user")
    await tables.insert("notes", {"id": 1, "user_id": ADA, "body": "a"}, {"id": 2, "user_id": BEN, "body": "b"})
    assert len((await run(tables, "select * from notes"))["rows"]) == 2
    return tables


@pytest.mark.on_files
async def test_sqlite_refuses_what_no_subquery_of_ours_reads(notes: Tables) -> None:
    query = f"with {PREFIX}0 as (select id, lower(body) from notes) select * from {PREFIX}0"
    for text in ON_FILES:
        with pytest.raises(DatabaseUnavailable):
            assert await send(notes, text) == [text]
        assert await send(notes, query) == [(1, "a"), (2, "b")]
    # The next read of the same connection is not confined.
    store = await find_store(notes)
    count = "select count(*) from _catalogue"
    assert await store.read(notes.app.id, lambda statements: statements.rows(count)) == [(1,)]
    assert await notes.list("notes?select=id&order=id") == [{"id": 1}, {"id": 2}]
    longest = f"with {PREFIX}0 as (select * from notes) select count(*) from {PREFIX}0, (select '{'x' * 2**21}')"
    with pytest.raises(DatabaseUnavailable):
        await send(notes, longest)


async def test_many_statements_at_once_keep_their_callers_apart(notes: Tables) -> None:
    ada, ben = await notes.user(ADA), await notes.user(BEN)
    texts = ("select id from notes", "update notes set body = body || 'x' returning id")
    answers = await asyncio.gather(
        *(run(notes, text, by=by) for _ in range(6) for by in (ada, ben, None) for text in texts)
    )
    for place, answer in enumerate(answers):
        expected_rows = [{"id": 1}], [{"id": 2}], [{"id": 1}, {"id": 2}]
        assert sorted(answer["rows"], key=str) == expected_rows[place // 2 % 3]
    [first, second] = await notes.list("notes?order=id")
    assert (first["body"], second["body"]) == ("a" + "x" * 12, "b" + "x" * 12)
