"""Statements of SQL that an app's own code sends: what they answer and write, and what they cannot."""

# ruff: noqa: E501 - statements of SQL, each in one line

from collections.abc import Sequence
from typing import Any

import pytest

from baobab.tools.core import Anonymous, BaobabError
from baobab.tools.core.context import RequestContext
from tests.http.installation import Headers
from tests.tools.data.conftest import ADA, BEN, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITEMS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "name": {"type": "text", "nullable": False},
        "price": "numeric(10,2)",
        "stock": {"type": "integer", "default": "0"},
        "big": "bigint",
        "ratio": "double precision",
        "more": "jsonb",
        "words": "text[]",
        "active": {"type": "boolean", "default": "true"},
        "owner": "uuid",
        "made_at": {"type": "timestamptz", "default": "now()"},
        "day": "date",
        "raw": "bytea",
    }
}
ROWS: list[dict[str, Any]] = [
    {"name": "Lamp", "price": "9.50", "stock": 3, "big": "9007199254740993", "ratio": 0.5, "more": {"a": [1, {"b": "x"}]},
     "words": ["p", "q"], "active": True, "owner": ADA, "made_at": "2026-01-02T03:04:05Z", "day": "2026-01-02",
     "raw": "\\x00ff"},
    {"name": "chair", "price": "10.00", "stock": 1, "active": False, "owner": BEN, "made_at": "2026-02-02T03:04:05Z"},
    {"name": "Table", "price": "100.25", "stock": 0, "active": True, "more": {"a": None}, "made_at": "2026-03-02T03:04:05Z"},
]  # fmt: skip


async def run(tables: Tables, sql: str, *params: Any, by: Headers | None = None, **options: Any) -> dict[str, Any]:
    """by: the caller; the app's owner if none is named, a visitor for an empty mapping."""
    services = tables.world.application.services
    caller: Any = Anonymous(tables.app.id)
    if by is None or by:
        caller = await services.credentials.caller((by or tables.world.owner)["authorization"].encode())
    arguments = {"app_id": tables.app.id, "sql": sql, "params": list(params), **options}
    answer: dict[str, Any] = await tables.world.application.registry.call(
        "data_sql", arguments, caller, RequestContext("test", "r")
    )
    return answer


async def rows(tables: Tables, sql: str, *params: Any, by: Headers | None = None) -> list[dict[str, Any]]:
    answer = await run(tables, sql, *params, by=by)
    assert answer["rowCount"] == len(answer["rows"])
    found_rows: list[dict[str, Any]] = answer["rows"]
    return found_rows


async def refusal(tables: Tables, sql: str, *params: Any, by: Headers | None = None, **options: Any) -> BaobabError:
    try:
        answer = await run(tables, sql, *params, by=by, **options)
    except BaobabError as error:
        return error
    raise AssertionError(f"{sql[:200]!r} was run and answered {answer}")


@pytest.fixture
async def items(tables: Tables) -> Tables:
    await tables.apply({"items": ITEMS, "posts": POSTS})
    await tables.insert("items", *ROWS)
    return tables


async def test_an_app_without_tables_is_told_so(tables: Tables) -> None:
    for sql in ("select 1", "select * from items", "delete from items"):
        error = await refusal(tables, sql)
        assert (error.status // 100, "table" in error.message) == (4, True), error


async def test_columns_have_the_values_that_a_list_has(items: Tables) -> None:
    assert await rows(items, "select * from items order by id") == await items.list("items?order=id")


@pytest.mark.parametrize(
    ("sql", "params", "expected"),
    [
        ("select name from items where id = $1", [2], [{"name": "chair"}]),
        ("select name from items where id = ?", ["2"], [{"name": "chair"}]),
        ("select count(*) from items", [], [{"count": 3}]),
        ("select name as \"theName\" from items where price > 9.99 order by price desc", [], [{"theName": "Table"}, {"theName": "chair"}]),
        ("select name from items where price >= $1 order by price", [10], [{"name": "chair"}, {"name": "Table"}]),
        ("select sum(price) as total, max(price) as most, min(name) as first from items", [], [{"total": "119.75", "most": "100.25", "first": "Lamp"}]),
        ("select price * 2 as twice from items where id = 1", [], [{"twice": "19.00"}]),
        ("select price * stock as worth from items order by worth desc limit 1", [], [{"worth": "28.50"}]),
        ("select name from items where price * 2 > 25", [], [{"name": "Table"}]),
        ("select active, count(*) as n from items group by active order by n desc", [], [{"active": True, "n": 2}, {"active": False, "n": 1}]),
        ("select avg(stock) as mean from items having count(*) > 1", [], [{"mean": 4 / 3}]),
        ("select name from items where name ilike $1", ["%LA%"], [{"name": "Lamp"}]),
        ("select name from items where name like 'L%' or name not like '%a%'", [], [{"name": "Lamp"}]),
        ("select name from items where id = any($1) order by name", [[1, 3]], [{"name": "Lamp"}, {"name": "Table"}]),
        ("select name from items where id <> all($1::int[]) order by name", [[1, 3]], [{"name": "chair"}]),
        ("select name from items where id in ($1, $2) and not active", [1, 2], [{"name": "chair"}]),
        ("select name from items where active = $1 order by id", [True], [{"name": "Lamp"}, {"name": "Table"}]),
        ("select name from items where made_at > $1 order by made_at", ["2026-02-01"], [{"name": "chair"}, {"name": "Table"}]),
        ("select name from items where made_at < now() - interval '1 day' and day is not null", [], [{"name": "Lamp"}]),
        ("select more->'a'->1->>'b' as b, more->'a'->0 as one, more->>'a' as t from items where id = 1", [], [{"b": "x", "one": 1, "t": '[1, {"b": "x"}]'}]),
        ("select name from items where more->'a'->1->>'b' = $1", ["x"], [{"name": "Lamp"}]),
        ("select case when stock > 2 then 'many' when stock > 0 then 'some' else 'none' end as word from items order by id", [], [{"word": "many"}, {"word": "some"}, {"word": "none"}]),
        ("select coalesce(day, made_at::date) as day from items order by id limit 2", [], [{"day": "2026-01-02"}, {"day": "2026-02-02"}]),
        ("with cheap as (select * from items where price < $1), n(c) as (select count(*) from cheap) select name, n.c from cheap, n where cheap.id = 1", [50], [{"name": "Lamp", "c": 2}]),
        ("with posts as (select * from items) select count(*) as n from posts", [], [{"n": 3}]),
        ("with recursive r(n) as (select 1 union all select n + 1 from r where n < 4) select sum(n) as s from r", [], [{"s": 10}]),
        ("select name, row_number() over (partition by active order by price desc) as place from items order by name", [], [{"name": "Lamp", "place": 2}, {"name": "Table", "place": 1}, {"name": "chair", "place": 1}]),
        ("select a.name, b.name as other from items a left join items b on b.id = a.id + 1 order by a.id", [], [{"name": "Lamp", "other": "chair"}, {"name": "chair", "other": "Table"}, {"name": "Table", "other": None}]),
        ("select name from items where exists (select 1 from posts where posts.user_id = items.owner)", [], []),
        ("select name from items i where price = (select max(price) from items)", [], [{"name": "Table"}]),
        ("select upper(name) || '-' || stock as t, length(name), substring(name from 1 for 2) as s from items where id = 1", [], [{"t": "LAMP-3", "length": 4, "s": "La"}]),
        ("select 1 as a union select 2 union all select 2 order by a", [], [{"a": 1}, {"a": 2}, {"a": 2}]),
        ("select * from (values (1, 'x'), (2, 'y')) as v(n, t) where n > $1", [1], [{"n": 2, "t": "y"}]),
        ("select count(*) filter (where active) as yes, bool_or(active) as any_active, string_agg(name, ',') as names from (select * from items order by id) as i", [], [{"yes": 2, "any_active": True, "names": "Lamp,chair,Table"}]),
        ("select json_agg(name) as names, json_build_object('n', count(*), 'on', true) as o from items where id < 3", [], [{"names": ["Lamp", "chair"], "o": {"n": 2, "on": True}}]),
        ("select extract(year from made_at) as y, date_trunc('month', made_at) as m from items where id = 1", [], [{"y": 2026, "m": "2026-01-01T00:00:00+00:00"}]),
        ("select round(price, 1) as r, greatest(stock, 2) as g, abs(stock - 5) as a, nullif(stock, 3) as z from items where id = 1", [], [{"r": "9.5", "g": 3, "a": 2, "z": None}]),
        ("select $1 as text, $2 as number, $3 as yes, $4 as nothing, $5 as obj", ["a?b'c\"", 7, True, None, {"k": [1]}], [{"text": "a?b'c\"", "number": 7, "yes": True, "nothing": None, "obj": {"k": [1]}}]),
        ("select id::text || 'x' as t, '5'::int + 1 as n, $1::jsonb as j from items where id = 1", ['{"a": 1}'], [{"t": "1x", "n": 6, "j": {"a": 1}}]),
        ("select name from public.items where owner = $1 -- a comment\n", [ADA.upper()], [{"name": "Lamp"}]),
        ("select i.id, p.title from items i join posts p on p.user_id = i.owner", [], []),
        ("select id from items join (select id, count(*) as n from items group by id) as c using (id) order by id offset 2", [], [{"id": 3}]),
        ("select distinct active from items order by active", [], [{"active": False}, {"active": True}]),
        ("select name from items order by made_at desc nulls last, 1 limit 1", [], [{"name": "Table"}]),
    ],
)  # fmt: skip
async def test_a_query_answers_alike_on_both_databases(
    items: Tables, sql: str, params: Sequence[Any], expected: list[dict[str, Any]]
) -> None:
    assert await rows(items, sql, *params) == expected
