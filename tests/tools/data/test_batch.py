"""Batches: writes to several tables in one call are all made or none, once for each key, and undone together."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from baobab.tools.data.jobs import data_sweep
from tests.tools.data.conftest import ADA, BEN, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOP: dict[str, Any] = {
    "stock": {"columns": {"id": {"type": "integer", "primaryKey": True}, "left": {"type": "integer"}}},
    "orders": {
        "columns": {
            "id": {"type": "serial", "primaryKey": True},
            "stock_id": {"type": "integer", "references": {"table": "stock", "column": "id", "onDelete": "CASCADE"}},
            "note": {"type": "text", "unique": True},
        }
    },
}


async def send(tables: Tables, *writes: dict[str, Any], by: Any = None, **headers: str) -> Any:
    return await tables.ask("POST", "/data-batch", {"writes": list(writes)}, by, **headers)


def sell(stock: int, note: str) -> list[dict[str, Any]]:
    return [
        {
            "op": "update",
            "table": "stock",
            "where": {"id": "eq.1", "left": f"eq.{stock}"},
            "changes": {"left": stock - 1},
            "expect": 1,
        },
        {"op": "insert", "table": "orders", "values": {"stock_id": 1, "note": note}},
    ]


async def open_shop(tables: Tables) -> None:
    await tables.apply(SHOP)
    await tables.insert("stock", {"id": 1, "left": 5})


async def test_all_writes_of_a_batch_are_made_and_undone_as_one_action(tables: Tables) -> None:
    await open_shop(tables)
    answer = await send(tables, *sell(5, "a"), {"op": "delete", "table": "orders", "where": {"note": "eq.none"}})
    assert answer.status == 200, answer.content
    assert answer.json == {
        "results": [
            {"op": "update", "table": "stock", "count": 1, "rows": [{"id": 1, "left": 4}]},
            {"op": "insert", "table": "orders", "count": 1, "rows": [{"id": 1, "stock_id": 1, "note": "a"}]},
            {"op": "delete", "table": "orders", "count": 0, "rows": []},
        ]
    }
    undone_answer = await tables.ask("POST", "/data-changes/undo", {"action_id": answer.headers["x-action-id"]})
    assert undone_answer.json["undone"] == 2
    assert (await tables.list("stock"), await tables.list("orders")) == ([{"id": 1, "left": 5}], [])


@pytest.mark.parametrize(
    ("last", "status", "code"),
    [
        ({"op": "insert", "table": "orders", "values": {"stock_id": 9}}, 400, "VALIDATION_FOREIGN_KEY_VIOLATION"),
        ({"op": "insert", "table": "orders", "values": {"note": "a"}}, 409, "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"),
        ({"op": "insert", "table": "nowhere", "values": {"note": "a"}}, 404, "VALIDATION_TABLE_NOT_FOUND"),
        ({"op": "delete", "table": "stock", "where": {"id": "eq.7"}, "expect": 1}, 409, "DATA_UNEXPECTED_COUNT"),
        ({"op": "delete", "table": "stock", "where": {"nothing": "eq.7"}}, 400, "VALIDATION_INVALID_SCHEMA"),
    ],
)
async def test_nothing_is_written_if_one_write_fails_which_the_error_names(
    tables: Tables, last: dict[str, Any], status: int, code: str
) -> None:
    await open_shop(tables)
    answer = await send(tables, *sell(5, "a"), last)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    assert answer.json["error"]["details"]["write"] == 2
    assert (await tables.list("stock"), await tables.list("orders")) == ([{"id": 1, "left": 5}], [])


@pytest.mark.parametrize(
    "write",
    [
        {"op": "update", "table": "stock", "changes": {"left": 1}},
        {"op": "update", "table": "stock", "changes": {"left": 1}, "where": {}},
        {"op": "delete", "table": "stock"},
        {"op": "insert", "table": "stock", "values": {"id": 2}, "where": {"id": "eq.1"}},
        {"op": "insert", "table": "stock", "values": [{"id": 2}] * 1001},
        {"op": "truncate", "table": "stock"},
        {"op": "insert", "table": "stock", "values": {"id": 2}, "further": 1},
    ],
)
async def test_a_write_that_is_not_whole_is_refused(tables: Tables, write: dict[str, Any]) -> None:
    await open_shop(tables)
    assert (await send(tables, write)).status == 400
    assert await tables.list("stock") == [{"id": 1, "left": 5}]


async def test_a_batch_writes_a_thousand_rows_at_most(tables: Tables) -> None:
    await open_shop(tables)
    rows = [{"note": str(number)} for number in range(501)]
    insert = {"op": "insert", "table": "orders", "values": rows}
    answer = await send(tables, insert, {**insert, "values": [{"note": f"b{number}"} for number in range(500)]})
    assert answer.status == 400
    assert await tables.list("orders") == []


async def test_each_write_is_made_under_the_policies_of_its_table(tables: Tables) -> None:
    await tables.apply({"posts": POSTS, **SHOP})
    await tables.policy("posts", "own", role="user", using_expression="user_id::text = current_user_id()")
    await tables.insert("stock", {"id": 1, "left": 5})
    ada, ben = await tables.user(ADA), await tables.user(BEN)
    mine = {"op": "insert", "table": "posts", "values": {"user_id": ADA, "title": "mine"}}
    assert (await send(tables, mine, by=ada)).status == 200
    refused_answer = await send(tables, mine, {**mine, "values": {"user_id": BEN, "title": "stolen"}}, by=ada)
    assert (refused_answer.status, refused_answer.json["error"]["code"]) == (403, "AUTH_RLS_POLICY_VIOLATION")
    # A table that no policy opens has no rows for a user.
    sale = await send(tables, mine, *sell(5, "a"), by=ada)
    assert sale.json["error"]["code"] == "DATA_UNEXPECTED_COUNT"
    unseen = {"op": "update", "table": "posts", "where": {"title": "eq.mine"}, "changes": {"title": "x"}}
    assert (await send(tables, unseen, by=ben)).json["results"][0]["count"] == 0
    assert (await send(tables, mine, by={})).json["error"]["code"] == "AUTH_RLS_REQUIRES_USER_JWT"
    assert [row["title"] for row in await tables.list("posts")] == ["mine"]


async def test_the_same_batch_with_one_key_is_made_once_also_by_two_at_once(tables: Tables) -> None:
    await open_shop(tables)
    first, second = await asyncio.gather(*(send(tables, *sell(5, "a"), idempotency_key="sale-1") for _ in range(2)))
    assert first.json == second.json
    assert await tables.list("stock") == [{"id": 1, "left": 4}]
    other = await send(tables, *sell(4, "b"), idempotency_key="sale-1")
    assert (other.status, other.json["error"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    # A batch that was refused has used up no key.
    assert (await send(tables, *sell(9, "b"), idempotency_key="sale-2")).status == 409
    assert (await send(tables, *sell(4, "b"), idempotency_key="sale-2")).status == 200


async def test_the_keys_of_one_user_are_not_those_of_another(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.policy("posts", "own", role="user", using_expression="user_id::text = current_user_id()")
    await tables.policy("posts", "guests", role="anon", using_expression="user_id is null")
    for user_id in (ADA, BEN):
        write = {"op": "insert", "table": "posts", "values": {"user_id": user_id, "title": "hello"}}
        assert (await send(tables, write, by=await tables.user(user_id), idempotency_key="one")).status == 200
    for title in ("first", "second"):
        write = {"op": "insert", "table": "posts", "values": {"title": title}}
        answer = await send(tables, write, by={}, idempotency_key="one")
        assert answer.status == 200, answer.content
    assert len(await tables.list("posts")) == 4


async def test_keys_are_forgotten_after_a_week(tables: Tables) -> None:
    await open_shop(tables)
    first = await send(tables, *sell(5, "a"), idempotency_key="sale")
    services: Any = tables.world.application.services
    job: Any = SimpleNamespace(services=services)
    await data_sweep(job)
    assert (await send(tables, *sell(5, "a"), idempotency_key="sale")).json == first.json
    later = services.clock.now() + timedelta(days=8)
    later_services: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: later), regions=services.regions)
    later_services.options = services.options
    await data_sweep(SimpleNamespace(services=later_services))
    again = await send(tables, *sell(5, "a"), idempotency_key="sale")
    assert again.json["error"]["code"] == "DATA_UNEXPECTED_COUNT"


async def test_the_answers_that_are_kept_for_keys_have_few_bytes_and_the_oldest_go_first(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baobab.tools.data.rows.attempts._MOST_BYTES", 500)
    await open_shop(tables)
    for number in range(5, 0, -1):
        assert (await send(tables, *sell(number, f"n{number}"), idempotency_key=str(number))).status == 200
    assert (await send(tables, *sell(1, "n1"), idempotency_key="1")).status == 200
    assert (await send(tables, *sell(5, "n5"), idempotency_key="5")).status == 409


async def test_minimal_answers_counts_only(tables: Tables) -> None:
    await open_shop(tables)
    answer = await send(tables, *sell(5, "a"), prefer="return=minimal")
    assert answer.json == {
        "results": [
            {"op": "update", "table": "stock", "count": 1},
            {"op": "insert", "table": "orders", "count": 1},
        ]
    }
