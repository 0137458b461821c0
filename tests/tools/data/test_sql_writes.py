"""What statements of an app's own code write is written as any write is: policies, checks, defaults, log and undo."""

# ruff: noqa: S608 - statements of SQL, each in one line

import asyncio
from typing import Any

import pytest

from tests.tools.data.conftest import ADA, BEN, POSTS, Tables
from tests.tools.data.test_sql import ITEMS, ROWS, refusal, rows, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAIRS: dict[str, Any] = {
    "columns": {"a": {"type": "integer", "primaryKey": True}, "b": {"type": "text", "primaryKey": True}, "n": "integer"}
}


@pytest.fixture
async def items(tables: Tables) -> Tables:
    await tables.apply({"items": ITEMS, "posts": POSTS, "pairs": PAIRS, "keyless": {"columns": {"n": "integer"}}})
    await tables.insert("items", *ROWS)
    return tables


async def test_an_insert_fills_defaults_and_returns_what_it_is_asked_for(items: Tables) -> None:
    sql = "insert into items (name, price, more, words, raw, day) values ($1, $2, $3, $4, $5, '2026-05-06')"
    answer = await run(items, f"{sql} returning *", "Pot", 2.5, {"k": [1]}, ["x"], "\\x0a")
    [row] = answer["rows"]
    assert answer["rowCount"] == 1
    assert row == (await items.list("items?name=eq.Pot"))[0]
    shown_values = {name: row[name] for name in ("id", "price", "stock", "active", "more", "words", "raw", "day")}
    assert shown_values == {
        "id": 4, "price": "2.50", "stock": 0, "active": True, "more": {"k": [1]}, "words": ["x"], "raw": "\\x0a",
        "day": "2026-05-06",
    }  # fmt: skip
    answer = await run(
        items,
        "insert into items (name, stock) values (lower('A') || $1, default), ('b', 1 + 1) returning name as n, stock",
        "!",
    )
    assert answer == {"rows": [{"n": "a!", "stock": 0}, {"n": "b", "stock": 2}], "rowCount": 2}
    answer = await run(items, "insert into items (name, price) select name || '2', price * 2 from items where id < 3")
    assert answer == {"rows": [], "rowCount": 2}
    assert await rows(items, "select name, price from items where name like '%2' order by id") == [
        {"name": "Lamp2", "price": "19.00"}, {"name": "chair2", "price": "20.00"},
    ]  # fmt: skip


async def test_an_update_computes_from_the_rows_and_tells_how_many_it_changed(items: Tables) -> None:
    answer = await run(
        items, "update items set stock = stock + $1, name = upper(name) where stock < 2 returning id, stock", 10
    )
    assert answer["rowCount"] == 2
    assert sorted(answer["rows"], key=lambda row: row["id"]) == [{"id": 2, "stock": 11}, {"id": 3, "stock": 10}]
    assert await run(items, "update items set active = not active, more = $1 where id = 1", {"z": None}) == {
        "rows": [], "rowCount": 1,
    }  # fmt: skip
    assert await rows(items, "select name, active, more from items order by id") == [
        {"name": "Lamp", "active": False, "more": {"z": None}},
        {"name": "CHAIR", "active": False, "more": None},
        {"name": "TABLE", "active": True, "more": {"a": None}},
    ]
    answer = await run(
        items, "with p(id, n) as (values (1, 5), (2, 6)) update items as i set stock = p.n from p where p.id = i.id"
    )
    assert answer["rowCount"] == 2
    assert [row["stock"] for row in await items.list("items?order=id&select=stock")] == [5, 6, 10]
    assert (await run(items, "update items set stock = 1 where id = 99"))["rowCount"] == 0
    error = await refusal(
        items, "update items set stock = p.n from (values (1, 5), (1, 6)) as p(id, n) where p.id = items.id"
    )
    assert error.code == "SQL_INVALID"


async def test_a_delete_returns_the_rows_that_it_deleted(items: Tables) -> None:
    await run(items, "insert into pairs values (1, 'x', 1), (1, 'y', 2), (2, 'x', 3)")
    answer = await run(items, "delete from pairs p where n > 1 returning p.a, b")
    assert sorted(answer["rows"], key=str) == [{"a": 1, "b": "y"}, {"a": 2, "b": "x"}]
    assert await items.list("pairs") == [{"a": 1, "b": "x", "n": 1}]
    assert (await run(items, "delete from items using pairs where pairs.a = items.id"))["rowCount"] == 1
    assert (await run(items, "delete from items"))["rowCount"] == 2


async def test_a_row_that_is_there_is_kept_or_changed_as_on_conflict_says(items: Tables) -> None:
    sql = "insert into pairs (a, b, n) values ($1, $2, $3) on conflict (a, b) do"
    assert (await run(items, f"{sql} nothing", 1, "x", 1))["rowCount"] == 1
    assert (await run(items, f"{sql} nothing returning n", 1, "x", 2)) == {"rows": [], "rowCount": 0}
    count = f"{sql} update set n = pairs.n + excluded.n returning *"
    assert (await run(items, count, 1, "x", 5))["rows"] == [{"a": 1, "b": "x", "n": 6}]
    assert (await run(items, count, 1, "z", 5))["rows"] == [{"a": 1, "b": "z", "n": 5}]
    answer = await run(items, f"{sql} update set n = excluded.n where pairs.n > $4", 1, "x", 9, 100)
    assert answer["rowCount"] == 0
    error = await refusal(items, "insert into pairs (a, b) values (1, 'x') on conflict do nothing")
    assert error.code == "SQL_NOT_ALLOWED"


async def test_a_statement_is_one_action_that_can_be_undone(items: Tables) -> None:
    before = await items.list("items?order=id")
    await run(items, "update items set stock = stock * 2 + 1")
    await run(items, "delete from items where id < 3")
    changes = (await items.ask("GET", "/data-changes")).json["changes"]
    actions = {change["action_id"] for change in changes if change["op"] != "INSERT"}
    assert len(actions) == 2
    for action in sorted(actions, key=int, reverse=True):
        answer = await items.ask("POST", "/data-changes/undo", {"action_id": action})
        assert answer.status == 200, answer.content
    assert await items.list("items?order=id") == before


async def test_counters_lose_nothing_when_many_count_at_once(items: Tables) -> None:
    await run(items, "insert into pairs values (1, 'n', 0)")
    await asyncio.gather(*(run(items, "update pairs set n = n + 1 where b = 'n'") for _ in range(12)))
    assert await items.list("pairs") == [{"a": 1, "b": "n", "n": 12}]


async def test_checks_and_references_refuse_a_statement_whole(items: Tables) -> None:
    error = await refusal(items, "insert into items (name) values ('a'), (null)")
    assert error.code == "VALIDATION_NOT_NULL_VIOLATION"
    await run(items, "insert into pairs values (1, 'x', 1), (2, 'x', 1)")
    assert (await refusal(items, "update pairs set a = 1")).status == 409
    assert (await refusal(items, "update items set stock = 'many'")).status == 400
    assert (await refusal(items, "update items set stock = stock + 9999999999")).status == 400
    assert len(await items.list("items")) == 3
    assert await items.list("pairs?order=a") == [{"a": 1, "b": "x", "n": 1}, {"a": 2, "b": "x", "n": 1}]


async def test_a_user_writes_what_the_tools_for_rows_would_write(items: Tables) -> None:
    for name, command, expression in (
        ("see", "SELECT", "public or user_id = current_user_id()"),
        ("add", "INSERT", "user_id = current_user_id()"),
        ("edit", "UPDATE", "user_id = current_user_id()"),
        ("drop", "DELETE", "user_id = current_user_id() and not public"),
    ):
        fields = {"with_check_expression" if command == "INSERT" else "using_expression": expression}
        await items.policy("posts", name, command=command, role="user", **fields)
    await items.insert("posts", *(
        {"user_id": owner, "title": f"{owner[0]}{number}", "public": number == 1, "score": number}
        for owner in (ADA, BEN) for number in (0, 1)
    ))  # fmt: skip
    ada = await items.user(ADA)
    titles = [row["title"] for row in await rows(items, "select title from posts order by title", by=ada)]
    assert titles == ["10", "11", "21"]
    assert (await run(items, "update posts set score = score + 5", by=ada))["rowCount"] == 2
    assert [row["score"] for row in await items.list("posts?order=title&select=score")] == [5, 6, 0, 1]
    assert (await refusal(items, "update posts set user_id = $1", BEN, by=ada)).code == "AUTH_RLS_POLICY_VIOLATION"
    error = await refusal(items, "insert into posts (user_id, title) values ($1, 'x')", BEN, by=ada)
    assert error.code == "AUTH_RLS_POLICY_VIOLATION"
    answer = await run(
        items, "insert into posts (user_id, title) values (current_user_id(), 'mine') returning title", by=ada
    )
    assert answer["rows"] == [{"title": "mine"}]
    assert (await run(items, "delete from posts returning title", by=ada))["rowCount"] == 2
    assert sorted(row["title"] for row in await items.list("posts?select=title")) == ["11", "20", "21"]
    assert (await refusal(items, "select * from posts", by={})).code == "AUTH_RLS_REQUIRES_USER_JWT"
    assert (await refusal(items, "insert into posts (title) values ('x')", by={})).status == 401


async def test_more_rows_than_a_call_may_write_change_nothing(items: Tables) -> None:
    for _ in range(2):
        await run(items, "insert into items (name) select 'n' from (values " + ", ".join(["(1)"] * 400) + ") as v(n)")
    await run(items, "insert into items (name) select name from items limit 300")
    error = await refusal(items, "update items set stock = 7")
    assert (error.status, error.details["limit"]) == (413, 1000)
    assert await rows(items, "select count(*) as n from items where stock = 7") == [{"n": 0}]
    assert (await refusal(items, "delete from items")).status == 413
    assert (await refusal(items, "select * from items")).status == 413
    assert (await refusal(items, "insert into items (name) select name from items")).status == 413
    assert await rows(items, "select count(*) as n from items") == [{"n": 1103}]


async def test_what_only_reads_is_refused_a_write(items: Tables) -> None:
    assert (await run(items, "select 1 as a", read_only=True))["rows"] == [{"a": 1}]
    for sql in ("insert into items (name) values ('a')", "update items set stock = 1", "delete from items"):
        assert (await refusal(items, sql, read_only=True)).code == "SQL_NOT_ALLOWED"
    assert (await refusal(items, "update keyless set n = 1")).code == "SQL_NOT_ALLOWED"
    assert (await run(items, "insert into keyless values (1)"))["rowCount"] == 1
