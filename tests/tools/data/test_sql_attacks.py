"""What an app's own code may try by a statement: none of it reads or changes more than the app's own tables, and of
those more than the caller's policies open.
"""

# ruff: noqa: E501, S608 - statements of SQL, each in one line

import asyncio
import threading
from typing import Any

import pytest

from baobab.storage.data import functions
from baobab.tools.core import BaobabError
from baobab.tools.data.sql.queries import PREFIX
from baobab.tools.data.sql.reading import Reader
from tests.http.installation import Headers
from tests.tools.data.conftest import ADA, BEN, Tables
from tests.tools.data.test_sql import refusal, rows, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

HIDDEN = "hiddenrow"
TABLES: dict[str, Any] = {
    "notes": {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "user_id": "uuid",
            "body": "text",
            "n": "integer",
            "price": "numeric(10,2)",
            "more": "jsonb",
        },
        "indexes": {"by_user": {"columns": ["user_id"]}},
    },
    "closed": {"columns": {"id": {"type": "integer", "primaryKey": True}, "secret": "text"}},
}
REFUSED = (
    # Other statements.
    "pragma table_info(notes)", "attach 'x.db' as x", "detach x", "vacuum", "vacuum into '/tmp/x'", "analyze",
    "create table x (a int)", "create temp table x (a int)", "create view v as select 1", "create trigger t after insert on notes begin select 1; end",
    "create extension dblink", "drop table notes", "alter table notes add x int", "truncate notes", "reindex",
    "begin", "commit", "rollback", "savepoint a", "release a", "set role none", "reset role", "set search_path = public",
    "set local statement_timeout = 0", "show all", "copy notes to stdout", "copy notes from '/etc/passwd'",
    "copy (select 1) to program 'id'", "do $$ begin end $$", "call f()", "lock table notes", "listen x", "notify x",
    "explain select 1", "explain analyze delete from notes", "grant all on notes to public", "merge into notes using closed on true when matched then delete",
    "prepare p as select 1", "execute p", "deallocate all", "declare c cursor for select 1", "fetch all from c", "load 'x'",
    "comment on table notes is 'x'", "security label on table notes is 'x'", "discard all", "replace into notes values (1)", "insert or replace into notes (id) values (1)",
    # Several statements, comments and what ends a text.
    "select 1; select 2", "select 1; drop table notes", "", " ", ";", "--", "/*", "select 'x", "select \"x", "select $$x",
    "select 1 /* ; */ ; delete from notes", "select 1 --\n; delete from notes",
    # Tables that are not the app's own.
    "select * from sqlite_master", "select * from sqlite_schema", "select * from main.notes", "select * from temp.notes", "select * from sqlite_temp_master",
    "select * from sqlite_sequence", "select * from pragma_table_info('notes')", "select * from pragma_database_list", "select * from json_each('[1]')", "select * from dbstat",
    "select * from _catalogue", "select * from _changes", "select * from _usage", "select * from \"_sequences\"", "insert into _usage values ('x', 0)",
    "update _catalogue set frozen = 1", "delete from _changes", "select * from pg_class", "select * from pg_catalog.pg_authid",
    "select * from information_schema.tables", "select * from pg_stat_activity", "select * from pg_settings", "select * from api_keys", "select * from public.api_keys",
    "select * from \"00000000-0000-4000-8000-000000000000\".notes", "select * from \"notes\"\"; drop table notes\"", "select * from other.notes", "select * from db.public.notes",
    "select (select count(*) from sqlite_master)", "with notes as (select * from main.notes) select * from notes", "select * from notes, lateral (select 1) x",
    "select * from only notes", "select * from notes tablesample system (100)", "select * from generate_series(1, 10)", "select * from rows from (now())",
    "select * from unnest(array[1])", "select * from notes as _b0", "with _b as (select 1) select * from _b", "table pg_class",
    # Columns that are none.
    "select rowid from notes", "select _rowid_ from notes", "select oid from notes", "select ctid from notes", "select xmin from notes", "select tableoid from notes",
    "select notes from notes", "select notes.notes from notes", "select \"notes\".\"*\" from notes", "select (notes).id from notes", "select sqlite_version from notes",
    # Functions.
    "select load_extension('x')", "select readfile('/etc/passwd')", "select writefile('x', 'y')", "select sqlite_version()", "select randomblob(1000000000)",
    "select zeroblob(1000000000)", "select hex(zeroblob(1000000000))", "select printf('%1000000000d', 1)", "select fts3_tokenizer('x')", "select likelihood(1, 0.5)",
    "select pg_sleep(100)", "select pg_sleep_for('1 hour')", "select repeat('x', 1000000000)", "select lpad('x', 1000000000)", "select rpad('x', 1000000000, 'y')",
    "select current_setting('baobab.user_id')", "select set_config('role', 'none', false)", "select set_config('baobab.user_id', 'x', true)",
    "select pg_read_file('/etc/passwd')", "select pg_ls_dir('.')", "select lo_import('/etc/passwd')", "select lo_export(1, '/tmp/x')", "select lo_get(1)", "select dblink('x', 'select 1')",
    "select query_to_xml('select * from closed', true, true, '')", "select table_to_xml('closed', true, true, '')", "select database_to_xml(true, true, '')",
    "select ts_stat('select 1')", "select pg_advisory_lock(1)", "select pg_try_advisory_lock(1)", "select pg_terminate_backend(1)", "select pg_cancel_backend(1)",
    "select nextval('x')", "select setval('x', 1)", "select txid_current()", "select version()", "select current_database()", "select current_user", "select session_user",
    "select user", "select inet_server_addr()", "select pg_catalog.set_config('role', 'none', false)", "select pg_catalog.lower('x')", "select \"set_config\"('role', 'none', false)",
    "select has_table_privilege('closed', 'select')", "select pg_get_viewdef(1)", "select to_regclass('closed')", "select 'closed'::regclass", "select 'x'::regproc", "select '1'::xml",
    "select cast('closed' as regclass)", "select 'notes'::notes", "select row(1, 2)", "select array(select 1)", "select xpath('x', 'y')", "select random()",
    "select regexp_replace('a', '(a*)*b', '')", "select 'x' ~ '(a*)*b'", "select 'x' similar to 'y'", "select 1 operator(pg_catalog.+) 2", "select body collate \"C\" from notes",
    "select json_each('[1]')", "select jsonb_path_query('{}', '$')", "select overlay('a' placing 'b' from 1)", "select to_tsvector('a')", "select auth.jwt()", "select absolute(1)",
    "select exact('+', 1, 2)", "select like('a', 'b', 'c')", "select gen_random_uuid(1)", "select replace(body, 'a', body) from notes", "select format('%s', 1)", "select chr(0)",
    # Writes within reads, and reads that lock.
    "with d as (delete from notes returning *) select * from d", "with u as (update notes set n = 1 returning *) select * from u", "with i as (insert into notes (id) values (9) returning *) select * from i",
    "select * from (delete from notes returning *) as d", "select 1 into x", "select * into x from notes", "select * from notes for update", "select * from notes for share nowait",
    # Clauses of writes that are not offered.
    "update notes set n = 1 returning (select count(*) from closed)", "delete from notes returning pg_sleep(1)", "update notes set (n, body) = (1, 'x')", "update notes set n = default",
    "update only notes set n = 1", "delete from only notes", "insert into notes (id) values (1) on conflict do nothing", "insert into notes (id) values (1) on conflict on constraint x do nothing",
    "insert into notes (id) values (1) on conflict (body) do nothing", "insert into notes (id) values (1) on conflict (id) where n > 1 do nothing", "update notes set ghost = 1", "insert into notes (ghost) values (1)",
    "update closed c set secret = 'x' from notes returning notes.body", "insert into notes select * from closed, notes", "delete from sqlite_master", "update pg_class set relname = 'x'",
    # Bombs.
    "select " + "(" * 3000 + "1" + ")" * 3000, "select " + "-" * 3001 + "1", "select 1" + "+1" * 4000, "select " + ",".join(["1"] * 500), "select * from " + ",".join(f"notes n{n}" for n in range(2000)),
    "select 'a'" + " || 'a'" * 1500, "select x from (" * 60 + "select 1 as x" + ") as x" * 60, "x" * 9000, "select 1 union " * 200 + "select 1",
    "select 99999999999999999999999999", "select 1e999", "select n from notes limit -1", "select n from notes limit 1.5", "select n from notes order by 7", "select n from notes order by 1 using >",
    "select $1", "select $0", "select $99999999999", "select :a", "select @a", "select {a}", "select %s", "select $a", "select ?1", "select \x00",
)  # fmt: skip


@pytest.fixture
async def world_of_two(tables: Tables) -> tuple[Tables, Headers]:
    await tables.apply(TABLES)
    await tables.insert("closed", {"id": 1, "secret": HIDDEN})
    await tables.insert(
        "notes",
        {"id": 1, "user_id": ADA, "body": "seen", "n": 1, "price": "1.50", "more": {"a": 1}},
        {"id": 2, "user_id": BEN, "body": HIDDEN, "n": 0, "price": "0.00", "more": {"a": HIDDEN}},
    )
    await tables.policy("notes", "own", using_expression="user_id = current_user_id()", role="user")
    return tables, await tables.user(ADA)


async def test_nothing_else_than_the_offered_statements_is_run(world_of_two: tuple[Tables, Headers]) -> None:
    tables, ada = world_of_two
    before = [await tables.list("notes?order=id"), await tables.list("closed")]
    for sql in REFUSED:
        for by in (None, ada):
            error = await refusal(tables, sql or " ", by=by)
            assert error.status in (400, 403, 404, 413), (sql[:100], error.status, error.message)
            assert error.code not in ("QUERY_TIMEOUT",), sql[:100]
            assert HIDDEN not in error.message, sql[:100]
            for word in (PREFIX, "psycopg", "sqlite3."):
                assert word not in error.message.replace(sql[:80], ""), (sql[:100], error.message)
    assert [await tables.list("notes?order=id"), await tables.list("closed")] == before


QUERIES = (
    "select * from notes", "select * from public.notes", "select n.* from notes n", "select a.body from notes a join notes b on a.id <> b.id or true",
    "select body from notes where id = 2 or 1 = 1", "select body from notes where user_id <> $1", "select count(*) from notes", "select count(id), max(body) from notes",
    "select (select body from notes m where m.id = 2) as body from notes", "select body from notes union all select body from notes", "with x as (select * from notes) select * from x",
    "with recursive r(id, body) as (select id, body from notes union all select notes.id, notes.body from notes join r on notes.id = r.id + 1) select * from r",
    "select body from notes where exists (select 1 from notes m where m.id = 2)", "select body from notes right join (values (2)) as v(id) using (id)", "select body from notes full join (select 2 as id) as v on v.id = notes.id",
    "select string_agg(body, ',') as b, json_agg(more) as m, sum(price) as s, avg(n) as a from notes", "select body, count(*) over () as c, lag(body) over (order by id desc) as p from notes",
    "select distinct body from notes order by body desc", "select body from notes group by body having count(*) > 0", "select body from notes where id in (select id from notes) or id = any($2)",
    "select body from notes order by case when id = 2 then 0 else 1 end limit 1", "select more->>'a' as a from notes", "select coalesce((select body from notes where id = 2), 'none') as b",
)  # fmt: skip


async def test_no_query_of_a_user_shows_a_hidden_row(world_of_two: tuple[Tables, Headers]) -> None:
    tables, ada = world_of_two
    for sql in QUERIES:
        params = [ADA, [1, 2]][: 2 if "$2" in sql else 1 if "$1" in sql else 0]
        if "$2" in sql:
            sql = f"{sql} or user_id = $1"  # noqa: PLW2901
        answer = await run(tables, sql, *params, by=ada)
        assert HIDDEN not in str(answer), sql
        if "count(*) from" in sql:
            assert answer["rows"] == [{"count": 1}]
        assert (await refusal(tables, sql, *params, by={})).status == 401, sql
        try:
            answer = await run(tables, sql.replace("notes", "closed").replace("body", "secret"), *params, by=ada)
        except BaobabError as error:
            answer = {"rows": [{"message": error.message}], "rowCount": 0}
        assert HIDDEN not in str(answer), sql


LEAKS = (
    "select id from notes where 1 / n > 0", "select 1 / n as x from notes", "select id from notes where (body || '')::int > 0 or true",
    "select id from notes where body like '%e%'", "select id from notes where body like $1", "select id from notes where lower(body) = 'x' or lower(body) <> 'x'", "select id from notes where price * 2 > 0 or true",
    "select id from notes where more->>'a' = 'x' or true", "select id from notes order by 1 / n", "select id from notes group by id, body having length(max(body)) > 0", "select sum(1 / n) as s from notes",
    "select id from notes n where (select 1 / n.n) > 0", "select a.id from notes a join notes b on 1 / b.n > 0", "select a.id from (values (1), (2)) as a(id) left join notes b on b.id = a.id and 1 / b.n > 0",
    "with x as (select 1 / n as q from notes) select count(*) as c from x", "select case when 1 / n > 0 then 1 end as c from notes", "select count(*) filter (where 1 / n > 0) as c from notes", "select row_number() over (order by 1 / n) as r from notes",
    "select id from notes where user_id = $2 and 1 / n > 0", "select id from notes where id = 2 and 1 / n > 0", "select id from notes where exists (select 1 from notes m where 1 / m.n > 0)", "select distinct 1 / n as x from notes limit 1",
    "update notes set body = 'x' where 1 / n > 0", "update notes set n = 1 / n", "delete from notes where 1 / n < 0", "insert into notes (id, n) select id + 10, 1 / n from notes",
)  # fmt: skip


async def test_nothing_of_a_statement_is_evaluated_on_a_hidden_row(
    world_of_two: tuple[Tables, Headers], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, ada = world_of_two
    await tables.policy("notes", "put", command="INSERT", with_check_expression="true", role="user")
    seen_values: list[str] = []
    # On files, every function tells what it was called with; on Postgres, a division of the hidden row by zero fails.
    for name, (count, function) in functions.FUNCTIONS.items():

        def call(check: Any, *arguments: Any, function: Any = function) -> Any:
            seen_values.extend(map(str, arguments))
            return function(check, *arguments)

        monkeypatch.setitem(functions.FUNCTIONS, name, (count, call))
    services = tables.world.application.services
    # What is open has the functions of before.
    await services.stores_of((await services.directory.app(tables.app.id)).region).data.close()
    for sql in LEAKS:
        params = ["%e%", ADA][: 2 if "$2" in sql else 1 if "$1" in sql else 0]
        if "$2" in sql:
            params, sql = [ADA], sql.replace("$2", "$1")  # noqa: PLW2901
        if "::int" in sql:
            # The visible text is no number, which the caller may know.
            continue
        answer = await run(tables, sql, *params, by=ada)
        assert HIDDEN not in str(answer), sql
        assert not any(HIDDEN in value for value in seen_values), sql
        await tables.ask("DELETE", "/notes?id=gt.2")
        await tables.ask("PATCH", "/notes?id=eq.1", {"n": 1, "body": "seen"})
    assert (await tables.list("notes?id=eq.2"))[0]["body"] == HIDDEN


async def test_on_conflict_tells_no_more_than_an_insert(world_of_two: tuple[Tables, Headers]) -> None:
    tables, ada = world_of_two
    await tables.policy(
        "notes", "put", command="INSERT", with_check_expression="user_id = current_user_id()", role="user"
    )
    insert = "insert into notes (id, user_id, body) values (2, current_user_id(), 'mine')"
    for more in ("", " on conflict (id) do update set body = notes.body || excluded.body returning *"):
        assert (await refusal(tables, insert + more, by=ada)).status in (403, 409)
    answer = await run(tables, f"{insert} on conflict (id) do nothing returning *", by=ada)
    assert answer == {"rows": [], "rowCount": 0}
    assert (await tables.list("notes?id=eq.2"))[0]["body"] == HIDDEN


NESTS = (
    ("greatest(", "n", ", 1)"), ("coalesce(", "n", ", 1)"), ("case when true then ", "n", " end"), ("(", "n", " + 1)"),
    ("(case ", "n", " when 1 then 1 else 0 end)"), ("nullif(", "n", ", 7)"), ("right(", "body", ", 9)"),
    ("(select ", "n", ")"), ("(", "true", " between false and true)"), ("json_build_object('a', ", "true", ")"),
)  # fmt: skip


async def find_code(tables: Tables, sql: str) -> str:
    """Returns the code of the error that a statement answers, or `none`."""
    try:
        await run(tables, sql)
    except BaobabError as error:
        return error.code
    return "none"


async def test_a_nested_statement_is_written_in_a_moment_or_refused(world_of_two: tuple[Tables, Headers]) -> None:
    """Where a part stood twice in each level, this would take for ever."""
    tables, _ = world_of_two
    for before, inner, after in NESTS:
        for depth in (3, 20, 50):
            code = await find_code(tables, f"select {before * depth}{inner}{after * depth} as x from notes")
            assert code.startswith(("SQL_", "none")), code
    # Each level doubles what the databases write out.
    for depth in (3, 12, 25, 38):
        nested_query = "select x + x as x from (" * depth + "select n as x from notes" + ") as q" * depth
        names = ["select n as x from notes", *(f"select x + x as x from q{level}" for level in range(depth))]
        chain = "with " + ", ".join(f"q{level} as ({text})" for level, text in enumerate(names))
        for sql in (nested_query, f"{chain} select x from q{depth}"):
            if depth < 10:
                assert await rows(tables, f"{sql} order by x desc limit 1") == [{"x": 8}]
            elif depth > 20:
                assert (await refusal(tables, sql)).code == "SQL_INVALID"


async def test_other_apps_are_out_of_reach(world_of_two: tuple[Tables, Headers]) -> None:
    tables, _ = world_of_two
    other = Tables(tables.world, await tables.world.create_app())
    await other.apply({"theirs": {"columns": {"id": {"type": "integer", "primaryKey": True}}}})
    await other.insert("theirs", {"id": 1})
    assert await rows(other, "select id from theirs") == [{"id": 1}]
    for name in ("theirs", f'"{other.app.id}".theirs', f'"{other.app.id}"."theirs"'):
        assert (await refusal(tables, f"select * from {name}")).status in (400, 404)
    assert (await refusal(other, "select * from notes")).status == 404


BOMBS = (
    "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) as c from r",
    "with recursive r(t) as (select 'x' union all select t || t from r) select max(length(t)) as c from r",
    "select count(*) as c from " + ", ".join(f"(select * from big) as b{number}" for number in range(8)),
)


@pytest.mark.parametrize("sql", BOMBS)
async def test_a_bomb_is_stopped_and_the_app_goes_on(tables: Tables, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baobab.tools.data.sql.running.READ_SECONDS", 0.5)
    await tables.apply({"big": {"columns": {"id": {"type": "integer", "primaryKey": True}}}})
    await run(
        tables,
        "insert into big select a.n * 10 + b.n from (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) as a(n), (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) as b(n)",
    )
    error = await refusal(tables, sql)
    assert error.code in ("QUERY_TIMEOUT", "SQL_TOO_LARGE", "SQL_INVALID", "QUERY_TOO_COMPLEX")
    assert await rows(tables, "select count(*) as n from big") == [{"n": 100}]


async def test_a_query_ends_with_the_call_that_nobody_waits_for(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but the end of the call ends it.
    for place in ("storage.data.files._QUICK_SECONDS", "storage.data.postgres._QUICK_SECONDS"):
        monkeypatch.setattr(f"baobab.{place}", 3600.0)
    monkeypatch.setattr("baobab.tools.data.sql.running.READ_SECONDS", 3600.0)
    has_begun, read = threading.Event(), Reader.read

    def begin(reader: Reader, *arguments: Any) -> Any:
        has_begun.set()
        return read(reader, *arguments)

    monkeypatch.setattr(Reader, "read", begin)
    await tables.apply({"big": {"columns": {"id": {"type": "integer", "primaryKey": True}}}})
    task = asyncio.create_task(run(tables, BOMBS[0]))
    while not has_begun.is_set():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # All places are free again, and what is read next is not stopped by the end of what was read before.
    answers = await asyncio.gather(*(run(tables, "select 1 as a") for _ in range(8)))
    assert [answer["rows"] for answer in answers] == [[{"a": 1}]] * 8
