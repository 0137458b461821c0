"""The roles of Postgres under which statements of an app's own code run, tried with SQL as it is."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from baobab.storage.data.row_security import SQL_ROLES
from baobab.storage.sql.database import DatabaseUnavailable, StatementTimeout
from tests.http.installation import Installation
from tests.servers import PostgresServer, start_postgres
from tests.tools.data.conftest import ADA, BEN, Tables
from tests.tools.data.test_row_security import open_as
from tests.tools.data.test_sql import refusal, run
from tests.tools.data.test_sql_walls import NOTES, find_store, send

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.on_files]

ON_POSTGRES = (
    'delete from "{app}".notes',
    'update "{app}".notes set body = $$x$$',
    'insert into "{app}".notes (id) values (9)',
    'select * from "{app}".notes for update',
    'select * from "{app}"._catalogue',
    'select * from "{app}"._usage',
    'select * from "{app}"._changes',
    'truncate "{app}".notes',
    'drop table "{app}".notes',
    'create table "{app}".x (a int)',
    "create table public.x (a int)",
    'select * from "{other}".notes',
    'select * from "{other}"._catalogue',
    "select * from public.api_keys",
    "select * from public.accounts",
    "select * from pg_authid",
    "select pg_read_file('/etc/passwd')",
    "select lo_import('/etc/passwd')",
    "copy (select 1) to program 'id'",
    'alter table "{app}".notes disable row level security',
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with start_postgres() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    # As a managed Postgres has it: no superuser, but one who may create roles.
    postgres.execute("CREATE ROLE managed LOGIN CREATEROLE")
    async with open_as(postgres, "managed", tmp_path_factory.mktemp("managed")) as installation:
        yield installation


@pytest.fixture
async def notes(tables: Tables) -> Tables:
    await tables.apply({"notes": NOTES})
    await tables.policy("notes", "own", using_expression="user_id = current_user_id()", role="user")
    await tables.insert("notes", {"id": 1, "user_id": ADA, "body": "a"}, {"id": 2, "user_id": BEN, "body": "b"})
    assert len((await run(tables, "select * from notes"))["rows"]) == 2
    return tables


async def test_a_role_of_postgres_reaches_the_apps_own_tables_and_reads_only(notes: Tables) -> None:
    other = Tables(notes.world, await notes.world.create_app())
    await other.apply({"notes": NOTES})
    await run(other, "select * from notes")
    query = f'select id from "{notes.app.id}".notes order by id'  # noqa: S608
    for role in ("sql", "sql_user", "sql_anon"):
        for text in ON_POSTGRES:
            with pytest.raises(DatabaseUnavailable):
                await send(notes, text.format(app=notes.app.id, other=other.app.id), role)
    assert [await send(notes, query, role) for role in ("sql", "sql_user", "sql_anon")] == [[(1,), (2,)], [(1,)], []]
    with pytest.raises(StatementTimeout):
        await send(notes, "select pg_sleep(60)", seconds=0.1)


async def test_the_roles_follow_the_schema_and_the_policies(notes: Tables) -> None:
    ada = await notes.user(ADA)
    await notes.policy("notes", "shared", using_expression="body = 'b'", role="user", command="SELECT")
    await notes.apply({"notes": {"columns": {**NOTES["columns"], "n": "integer"}}, "more": NOTES})
    await notes.insert("more", {"id": 1, "user_id": ADA})
    query = f'select id from "{notes.app.id}".notes order by id'  # noqa: S608
    assert await send(notes, query, "sql_user") == [(1,), (2,)]
    assert (await run(notes, "select count(*) as n from notes", by=ada))["rows"] == [{"n": 2}]
    assert (await run(notes, "select id from more"))["rows"] == [{"id": 1}]
    assert (await run(notes, "select id from more", by=ada))["rows"] == []


async def test_the_roles_go_with_their_app(notes: Tables) -> None:
    store = await find_store(notes)
    assert store.row_security is not None
    names = [store.row_security.name_sql_role(notes.app.id, role) for role in SQL_ROLES]
    query = "select rolname from pg_roles where rolname IN ?"
    other = Tables(notes.world, await notes.world.create_app())
    await other.apply({"notes": NOTES})

    async def find() -> set[str]:
        rows = await store.read(other.app.id, lambda statements: statements.rows(query, names))
        return {name for (name,) in rows}

    assert await find() == set(names)
    await store.erase(notes.app.id)
    assert await find() == set()


async def test_many_first_statements_at_once_create_the_roles_once(tables: Tables) -> None:
    await tables.apply({"notes": NOTES})
    answers = await asyncio.gather(*(run(tables, "select count(*) as n from notes") for _ in range(6)))
    assert [answer["rows"] for answer in answers] == [[{"n": 0}]] * 6


async def test_without_roles_no_statement_is_run(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    postgres.execute("CREATE ROLE plain LOGIN")
    async with open_as(postgres, "plain", tmp_path_factory.mktemp("plain")) as world:
        tables = Tables(world, await world.create_app())
        await tables.apply({"notes": NOTES})
        for sql in ("select * from notes", "insert into notes (id) values (1)"):
            assert (await refusal(tables, sql)).code == "SQL_NOT_OFFERED"
