"""A write of rows with an `Idempotency-Key` is made once: sent again, it gets the first answer, and its action."""

import asyncio
from typing import Any

import pytest

from tests.http.installation import Answer
from tests.tools.data.conftest import ADA, BEN, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITEMS: dict[str, Any] = {
    "columns": {
        "id": {"type": "integer", "primaryKey": True},
        "note": {"type": "text"},
        "idempotency_key": {"type": "text"},
    }
}
ROWS = [{"id": number, "note": "old", "idempotency_key": f"k{number}"} for number in (1, 2, 3)]
WRITES: list[tuple[str, str, Any, list[int]]] = [
    ("POST", "/items", {"id": 4, "note": "new"}, [1, 2, 3, 4]),
    ("POST", "/items", [{"id": 4}, {"id": 5}], [1, 2, 3, 4, 5]),
    ("PATCH", "/items/1", {"note": "new"}, [1, 2, 3]),
    ("PATCH", "/items?id=lt.3", {"note": "new"}, [1, 2, 3]),
    ("DELETE", "/items/1", None, [2, 3]),
    ("DELETE", "/items?id=lt.3", None, [3]),
]


async def open_items(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    await tables.insert("items", *ROWS)


@pytest.mark.parametrize(("method", "path", "body", "remaining_ids"), WRITES)
async def test_a_write_that_is_sent_again_is_answered_alike_and_made_once(
    tables: Tables, method: str, path: str, body: Any, remaining_ids: list[int]
) -> None:
    await open_items(tables)

    async def send(to: str, content: Any) -> Answer:
        return await tables.ask(method, to, content, idempotency_key="once", prefer="return=representation")

    first = await send(path, body)
    assert first.status in (200, 201), first.content
    before = (await tables.ask("GET", "/data-changes")).json
    again = await asyncio.gather(*(send(path, body) for _ in range(2)))
    for answer in again:
        assert (answer.status, answer.json) == (first.status, first.json)
        assert answer.headers["x-action-id"] == first.headers["x-action-id"]
    assert (await tables.ask("GET", "/data-changes")).json == before
    assert [row["id"] for row in await tables.list("items?order=id")] == remaining_ids
    other = await send(path.replace("1", "2").replace("lt.3", "lt.2"), {"id": 9})
    assert (other.status, other.json["error"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    undone_answer = await tables.ask("POST", "/data-changes/undo", {"action_id": again[0].headers["x-action-id"]})
    assert undone_answer.status == 200, undone_answer.content
    assert await tables.list("items?order=id") == ROWS


async def test_two_that_arrive_together_are_one_write(tables: Tables) -> None:
    await open_items(tables)
    answers = await asyncio.gather(
        *(tables.ask("POST", "/items", {"id": 7}, idempotency_key="together") for _ in range(4))
    )
    assert [answer.status for answer in answers] == [201] * 4
    assert len({answer.headers["x-action-id"] for answer in answers}) == 1


async def test_a_write_that_failed_is_kept_for_no_key(tables: Tables) -> None:
    await open_items(tables)
    for method, path, body in (("PATCH", "/items/8", {"note": "new"}), ("DELETE", "/items/8", None)):
        missing = await tables.ask(method, path, body, idempotency_key=f"later-{method}")
        assert missing.status == 404
    answer = await tables.ask("POST", "/items", {"id": 1}, idempotency_key="taken")
    assert answer.status == 409
    await tables.ask("DELETE", "/items/1")
    assert (await tables.ask("POST", "/items", {"id": 1}, idempotency_key="taken")).status == 201
    await tables.insert("items", {"id": 8, "note": "old"})
    for method, body in (("PATCH", {"note": "new"}), ("DELETE", None)):
        assert (await tables.ask(method, "/items/8", body, idempotency_key=f"later-{method}")).status == 200


async def test_a_key_is_its_callers_own(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.ask("POST", "/rls", {"table_name": "posts", "user_column": "user_id"})
    ids = []
    for user in (ADA, BEN):
        by = await tables.user(user)
        answer = await tables.ask("POST", "/posts", {"title": "mine"}, by, idempotency_key="same")
        assert answer.status == 201, answer.content
        ids.append(answer.json["id"])
    assert len(set(ids)) == 2


async def test_a_column_of_the_name_is_a_filter_and_no_key(tables: Tables) -> None:
    await open_items(tables)
    answer = await tables.ask("DELETE", "/items?idempotency_key=eq.k2&note=eq.old", prefer="return=representation")
    assert [row["id"] for row in answer.json] == [2]
    changed_answer = await tables.ask(
        "PATCH", "/items?idempotency_key=eq.k1", {"note": "x"}, prefer="return=representation"
    )
    assert [row["id"] for row in changed_answer.json] == [1]


async def test_an_undo_whose_answer_was_lost_is_sent_again_and_answered_alike(tables: Tables) -> None:
    await open_items(tables)
    deletion = await tables.ask("DELETE", "/items/1")
    body = {"action_id": deletion.headers["x-action-id"]}
    path = "/data-changes/undo"
    first, *others = await asyncio.gather(*(tables.ask("POST", path, body, idempotency_key="lost") for _ in range(3)))
    assert first.status == 200, first.content
    for other in others:
        assert (other.status, other.json, other.headers["x-action-id"]) == (
            200,
            first.json,
            first.headers["x-action-id"],
        )
    assert await tables.list("items?order=id") == ROWS
    without_key = await tables.ask("POST", path, body)
    assert (without_key.status, without_key.json["error"]["code"]) == (409, "UNDO_CONFLICT")
