"""Undo: what a write or a run did to rows is taken back, unless a later write would be lost."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baobab.tools.core.context import RequestContext
from baobab.tools.core.guard.steps import Step
from baobab.tools.data.jobs import data_sweep
from tests.http.installation import KEY
from tests.tools.data.conftest import ADA, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIBRARY: dict[str, Any] = {
    "authors": {"columns": {"id": {"type": "integer", "primaryKey": True}, "name": {"type": "text"}}},
    "books": {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "author_id": {
                "type": "integer",
                "references": {"table": "authors", "column": "id", "onDelete": "CASCADE", "onUpdate": "CASCADE"},
            },
            "sequel_of": {
                "type": "integer", "references": {"table": "books", "column": "id", "onDelete": "SET NULL"}
            },
            "price": {"type": "numeric"},
            "tags": {"type": "text[]"},
        }
    },
}  # fmt: skip


async def undo(tables: Tables, **arguments: Any) -> Any:
    return await tables.ask("POST", "/data-changes/undo", arguments)


async def read_all(tables: Tables) -> list[Any]:
    return [await tables.list(f"{name}?order=id") for name in LIBRARY]


async def test_each_kind_of_write_is_taken_back(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    created_answer = await tables.ask("POST", "/posts", {"title": "one", "score": 1})
    row = created_answer.json
    changed_answer = await tables.ask("PATCH", f"/posts/{row['id']}", {"title": "two"})
    gone_answer = await tables.ask("DELETE", "/posts?title=eq.two")
    ids = [answer.headers["x-action-id"] for answer in (created_answer, changed_answer, gone_answer)]
    assert await tables.list("posts") == []
    refusal = await undo(tables, action_id=ids[1])
    assert (refusal.status, refusal.json["error"]["code"]) == (409, "UNDO_CONFLICT")
    assert refusal.json["error"]["details"] == {"later_actions": [ids[2]]}
    assert (await undo(tables, action_id=ids[2])).json == {"undone": 1, "actions": [ids[2]]}
    assert (await tables.list("posts"))[0]["title"] == "two"
    again = await undo(tables, action_id=ids[2])
    assert (again.status, again.json["error"]["code"]) == (409, "UNDO_CONFLICT")
    back = await undo(tables, action_id=ids[1])
    assert back.status == 200
    # An undo is a write, and can be undone.
    assert (await undo(tables, action_id=back.headers["x-action-id"])).status == 200
    assert (await tables.list("posts"))[0]["title"] == "two"
    assert (await undo(tables, action_id=ids[1])).status == 200
    assert await tables.list("posts") == [row]
    latest = (await tables.ask("GET", "/data-changes?limit=1")).json["changes"][0]
    assert (latest["op"], latest["before"]["title"], latest["after"]["title"]) == ("UPDATE", "two", "one")
    assert (latest["tool"], latest["role"]) == ("data_undo", "service")
    assert (await undo(tables, action_id=ids[0])).status == 200
    assert await tables.list("posts") == []


async def test_what_references_delete_and_change_comes_back_too(tables: Tables) -> None:
    await tables.apply(LIBRARY)
    await tables.insert("authors", {"id": 1, "name": "Ada"}, {"id": 2, "name": "Ben"})
    await tables.insert(
        "books",
        {"id": 1, "author_id": 1, "price": "9.90", "tags": ["a", None]},
        {"id": 2, "author_id": 2, "sequel_of": 1},
        {"id": 3, "author_id": 1, "sequel_of": 1},
    )
    before = await read_all(tables)
    answer = await tables.ask("DELETE", "/authors/1")
    assert await tables.list("books?select=id,sequel_of") == [{"id": 2, "sequel_of": None}]
    assert (await undo(tables, action_id=answer.headers["x-action-id"])).status == 200
    assert await read_all(tables) == before
    moved_answer = await tables.ask("PATCH", "/authors/1", {"id": 7})
    assert [row["author_id"] for row in await tables.list("books?order=id")] == [7, 2, 7]
    assert (await undo(tables, action_id=moved_answer.headers["x-action-id"])).status == 200
    assert await read_all(tables) == before


async def test_an_undo_deletes_no_later_row_that_refers_to_what_it_takes_back(tables: Tables) -> None:
    await tables.apply(LIBRARY)
    answer = await tables.ask("POST", "/authors", {"id": 1, "name": "Ada"})
    await tables.insert("books", {"id": 1, "author_id": 1})
    assert (await undo(tables, action_id=answer.headers["x-action-id"])).json["error"]["code"] == "UNDO_CONFLICT"
    assert len(await tables.list("books")) == 1
    assert (await undo(tables, action_id=answer.headers["x-action-id"], cascade=True)).status == 200
    assert await read_all(tables) == [[], []]


async def test_rows_of_one_write_that_refer_to_each_other_are_taken_back_and_come_back(tables: Tables) -> None:
    await tables.apply(LIBRARY)
    await tables.insert("authors", {"id": 1, "name": "Ada"})
    circle = [{"id": 1, "author_id": 1, "sequel_of": 2}, {"id": 2, "author_id": 1, "sequel_of": 1}]
    creation = await tables.ask("POST", "/books", [*circle, {"id": 3, "author_id": 1, "sequel_of": 3}])
    before = await read_all(tables)
    deletion = await tables.ask("DELETE", "/books?id=gt.0")
    assert (await undo(tables, action_id=deletion.headers["x-action-id"])).json["undone"] == 3
    assert await read_all(tables) == before
    assert (await undo(tables, action_id=creation.headers["x-action-id"])).json["undone"] == 3
    assert await tables.list("books") == []


async def test_rows_that_delete_each_other_are_all_answered_and_come_back(tables: Tables) -> None:
    parent = {"type": "integer", "references": {"table": "nodes", "column": "id", "onDelete": "CASCADE"}}
    await tables.apply({"nodes": {"columns": {"id": {"type": "integer", "primaryKey": True}, "parent_id": parent}}})
    circle = [{"id": 1, "parent_id": 2}, {"id": 2, "parent_id": 3}, {"id": 3, "parent_id": 1}]
    creation = await tables.ask("POST", "/nodes", circle)
    deletion = await tables.ask("DELETE", "/nodes?id=gt.0")
    assert sorted(row["id"] for row in deletion.json) == [1, 2, 3]
    assert (await undo(tables, action_id=deletion.headers["x-action-id"])).json["undone"] == 3
    assert await tables.list("nodes?order=id") == circle
    assert (await undo(tables, action_id=creation.headers["x-action-id"])).json["undone"] == 3
    assert await tables.list("nodes") == []


async def test_an_insert_that_changed_rows_is_taken_back(tables: Tables) -> None:
    await tables.apply(LIBRARY)
    await tables.insert("authors", {"id": 1, "name": "Ada"})
    rows = [{"id": 1, "name": "Lovelace"}, {"id": 2, "name": "Ben"}]
    answer = await tables.ask("POST", "/authors?on_conflict=id", rows)
    assert (await undo(tables, action_id=answer.headers["x-action-id"])).json["undone"] == 2
    assert await tables.list("authors") == [{"id": 1, "name": "Ada"}]


async def test_users_write_and_those_who_run_the_app_undo(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.ask("POST", "/rls", {"table_name": "posts", "user_column": "user_id"})
    ada = await tables.user(ADA)
    answer = await tables.ask("POST", "/posts", {"title": "mine"}, ada)
    changes = (await tables.ask("GET", "/data-changes?table=posts")).json["changes"]
    assert [(each["role"], each["user_id"], each["tool"]) for each in changes] == [("user", ADA, "data_insert")]
    assert (await tables.ask("GET", "/data-changes", None, ada)).status == 403
    assert (await tables.ask("POST", "/data-changes/undo", {"action_id": "1"}, ada)).status == 403
    assert (await undo(tables, action_id=answer.headers["x-action-id"])).status == 200


async def test_what_cannot_be_undone_is_said(tables: Tables) -> None:
    assert (await undo(tables, action_id="1")).status == 404
    assert (await undo(tables, run_id="nobody")).status == 404
    assert (await undo(tables)).status == 400
    assert (await undo(tables, action_id="1", run_id="x")).status == 400
    assert (await undo(tables, action_id="0x1")).status == 400
    await tables.apply({"notes": {"columns": {"text": {"type": "text"}}}, "posts": POSTS})
    keyless = await tables.ask("POST", "/notes", {"text": "a"})
    assert (await undo(tables, action_id=keyless.headers["x-action-id"])).json["error"]["code"] == "UNDO_IMPOSSIBLE"
    answer = await tables.ask("POST", "/posts", {"title": "a"})
    await tables.apply({"notes": {"columns": {"text": {"type": "text"}}}}, drop=["posts"])
    assert (await undo(tables, action_id=answer.headers["x-action-id"])).json["error"]["code"] == "UNDO_IMPOSSIBLE"


async def test_a_write_to_a_dropped_table_is_not_undone_in_its_namesake(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    deleted_row = (await tables.ask("POST", "/posts", {"title": "of a dropped table"})).json
    deletion = await tables.ask("DELETE", f"/posts/{deleted_row['id']}")
    await tables.apply({"letters": POSTS}, drop=["posts"])
    await tables.apply({"posts": POSTS}, drop=["letters"])
    assert (await undo(tables, action_id=deletion.headers["x-action-id"])).json["error"]["code"] == "UNDO_IMPOSSIBLE"
    assert await tables.list("posts") == []
    changes = (await tables.ask("GET", "/data-changes?limit=4")).json["changes"]
    assert {change["table"] for change in changes} == {"posts (dropped)", "_schema"}


async def test_what_is_too_old_is_not_undone_and_swept(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    await tables.apply({"posts": POSTS})
    answer = await tables.ask("POST", "/posts", {"title": "old"})
    services = tables.world.application.services
    later = services.clock.now() + timedelta(days=8)
    monkeypatch.setattr(type(services.clock), "now", lambda _: later)
    answer_in_time = await tables.ask("PATCH", "/posts?title=eq.old", {"title": "new"})
    assert (await undo(tables, action_id=answer.headers["x-action-id"])).status == 404

    job: Any = SimpleNamespace(services=services)
    await data_sweep(job)
    changes = (await tables.ask("GET", "/data-changes")).json["changes"]
    assert [change["action_id"] for change in changes] == [answer_in_time.headers["x-action-id"]]
    assert (await undo(tables, action_id=answer_in_time.headers["x-action-id"])).status == 200


async def test_the_log_holds_no_more_than_it_may(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    await tables.apply({"posts": POSTS})
    services = tables.world.application.services
    object.__setattr__(services.options, "undo_bytes", 100_000)
    try:
        ids = [(await tables.ask("POST", "/posts", {"title": "x" * 30_000})).headers["x-action-id"] for _ in range(5)]
    finally:
        object.__setattr__(services.options, "undo_bytes", 64 * 2**20)
    action_ids = [change["action_id"] for change in (await tables.ask("GET", "/data-changes")).json["changes"]]
    assert action_ids == ids[:-4:-1]
    assert (await undo(tables, action_id=ids[0])).status == 404
    assert (await undo(tables, action_id=ids[4])).status == 200


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["author", "book", "rename", "move", "delete author", "delete book"]),
        st.integers(1, 4),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_undone_backwards_everything_is_as_it_was(tables: Tables, steps: list[tuple[str, int, int]]) -> None:
    await tables.apply(LIBRARY)
    await tables.ask("DELETE", "/books?id=gt.0")
    await tables.ask("DELETE", "/authors?id=gt.0")
    states, actions = [await read_all(tables)], []
    for kind, one, two in steps:
        requests: dict[str, tuple[str, str, Any]] = {
            "author": ("POST", "/authors", {"id": one, "name": f"n{two}"}),
            "book": ("POST", "/books?on_conflict=id", {"id": one, "author_id": two, "sequel_of": two}),
            "rename": ("PATCH", f"/authors?id=lte.{one}", {"name": f"r{two}"}),
            "move": ("PATCH", f"/authors/{one}", {"id": two}),
            "delete author": ("DELETE", f"/authors?id=gte.{one}", None),
            "delete book": ("DELETE", f"/books?id=lte.{one}", None),
        }
        answer = await tables.ask(*requests[kind])
        if "x-action-id" in answer.headers:
            actions.append(answer.headers["x-action-id"])
            states.append(await read_all(tables))
    for action, state in zip(reversed(actions), reversed(states[:-1]), strict=True):
        back = await undo(tables, action_id=action)
        assert back.status == 200, (back.content, steps)
        assert await read_all(tables) == state, steps


async def test_what_a_run_wrote_is_undone_as_a_whole(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    application = tables.world.application
    caller = await application.services.credentials.caller(f"Bearer {KEY}".encode())
    registry = application.registry
    for number in range(3):
        step = Step("run-7", f"call-{number}", "", "", timedelta(minutes=1))
        context = RequestContext("agent", f"request-{number}", step=step)
        arguments = {"app_id": tables.app.id, "table": "posts", "values": {"title": f"from the run {number}"}}
        await registry.run(registry.find("data_insert"), arguments, caller, context)
    kept_rows = await tables.insert("posts", {"title": "from a person"})
    changes = (await tables.ask("GET", "/data-changes?run_id=run-7")).json["changes"]
    assert [change["after"]["title"] for change in changes] == [f"from the run {number}" for number in (2, 1, 0)]
    assert (await undo(tables, run_id="run-7")).json["undone"] == 3
    assert await tables.list("posts") == kept_rows
    assert (await undo(tables, run_id="run-7")).status == 404
