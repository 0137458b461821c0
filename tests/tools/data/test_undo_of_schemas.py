"""What a schema drops or renames comes back within the days of undo: rows, indexes, policies and references."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from baobab.tools.data.jobs import data_sweep
from tests.tools.data.conftest import ADA, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

ID: dict[str, Any] = {"id": {"type": "serial", "primaryKey": True}}
LIBRARY: dict[str, Any] = {
    "authors": {"columns": {**ID, "name": {"type": "text", "unique": True}}, "_seed": True},
    "books": {
        "columns": {
            **ID,
            "author_id": {"type": "integer", "references": {"table": "authors", "column": "id", "onDelete": "CASCADE"}},
            "owner": "uuid",
            "title": {"type": "text", "nullable": False, "default": "'none'"},
            "price": {"type": "numeric(8,2)", "nullable": False},
            "double": {"type": "numeric", "generated": "price * 2"},
            "tags": "text[]",
            "more": "jsonb",
        },
        "indexes": {"by_title": {"columns": ["title", "owner"], "unique": True}, "by_owner": {"columns": ["owner"]}},
        "checks": {"fair": "price < 1000"},
    },
}
BOOK = {"author_id": 1, "owner": ADA, "title": "one", "price": "9.50", "tags": ["a"], "more": {"b": [1]}}


async def set_up(tables: Tables) -> Any:
    await tables.apply(LIBRARY)
    await tables.insert("authors", {"name": "Ada"}, {"name": "Ben"})
    await tables.insert("books", BOOK, {**BOOK, "title": "two", "price": "2"})
    for table, text in (("authors", "name <> 'Ben'"), ("books", "owner = current_user_id()")):
        policy = {"table_name": table, "policy_name": "some", "command": "SELECT", "using_expression": text}
        assert (await tables.ask("POST", "/rls/policies", policy)).status == 200
    return await read_all(tables)


async def read_all(tables: Tables) -> Any:
    schema = (await tables.ask("GET", "/schema")).json["schema"]
    policies = (await tables.ask("GET", "/rls")).json["policies"]
    return schema, policies, {name: await tables.list(f"{name}?order=id") for name in schema["tables"]}


async def apply(tables: Tables, schema: Any, mode: str = "merge") -> str:
    answer = await tables.ask("POST", "/schema/apply", {"schema": schema, "mode": mode})
    assert answer.status == 200, answer.content
    assert answer.headers["x-action-id"] == answer.json["action_id"]
    return str(answer.json["action_id"])


async def undo(tables: Tables, action: str) -> Any:
    return await tables.ask("POST", "/data-changes/undo", {"action_id": action})


DROPS: dict[str, Any] = {
    "a table": {"_drop": ["books"]},
    "a table that others refer to": {
        "_drop": ["authors"], "tables": {"books": {"columns": {"author_id": {"references": None}}}}
    },
    "both tables": {"_drop": ["authors", "books"]},
    "columns": {"tables": {"books": {"_dropColumns": ["tags", "more", "author_id"]}}},
    "a column that others are computed from": {
        "tables": {"books": {"_dropColumns": ["price", "double"], "checks": {"fair": None}}}
    },
    "a column with indexes": {"tables": {"books": {"_dropColumns": ["title"]}}},
    "renames": {
        "_renameTables": {"books": "works"}, "tables": {"works": {"_renameColumns": {"title": "name", "price": "cost"}}}
    },
    "renames and drops": {
        "_renameTables": {"books": "works"},
        "tables": {"works": {"_renameColumns": {"title": "name"}, "_dropColumns": ["tags"]}},
    },
}  # fmt: skip


@pytest.mark.parametrize("schema", DROPS.values(), ids=DROPS)
async def test_what_a_schema_took_away_comes_back_whole(tables: Tables, schema: Any) -> None:
    before = await set_up(tables)
    action = await apply(tables, schema)
    assert await read_all(tables) != before
    entry = (await tables.ask("GET", "/data-changes?table=_schema")).json["changes"][0]
    assert (entry["action_id"], entry["op"], entry["before"]) == (action, "SCHEMA", None)
    answer = await undo(tables, action)
    assert answer.status == 200, answer.content
    assert (answer.json["actions"], "warnings" in answer.json) == ([action], False)
    after = await read_all(tables)
    assert sort_columns(after) == sort_columns(before)
    # The table works as before: counters, keys, checks and the count of bytes.
    [row] = await tables.insert("books", {"author_id": 2, "owner": ADA, "title": "three", "price": "3"})
    assert (row["id"], row["double"]) == (3, "6.00")
    assert (await tables.ask("POST", "/books", {**BOOK, "price": "1000"})).status == 400
    again = await undo(tables, action)
    assert (again.status, again.json["error"]["code"]) == (409, "UNDO_CONFLICT")


def sort_columns(everything: Any) -> Any:
    """The schema with columns in the order of their names: a restored one comes last."""
    schema, policies, rows = everything
    for table in schema["tables"].values():
        table["columns"] = dict(sorted(table["columns"].items()))
    return schema, sorted(policies, key=str), rows


async def test_an_undone_rename_can_be_undone_and_a_restored_drop_is_dropped_again(tables: Tables) -> None:
    await set_up(tables)
    rename = await apply(tables, DROPS["renames"])
    await undo(tables, rename)
    changes = (await tables.ask("GET", "/data-changes?table=_schema")).json["changes"]
    assert (await undo(tables, changes[0]["action_id"])).status == 200
    assert (await tables.list("works?id=eq.1&select=name")) == [{"name": "one"}]
    drop = await apply(tables, {"_drop": ["works"]})
    await undo(tables, drop)
    changes = (await tables.ask("GET", "/data-changes?table=_schema")).json["changes"]
    refusal = await undo(tables, changes[0]["action_id"])
    assert (refusal.status, refusal.json["error"]["code"]) == (409, "UNDO_IMPOSSIBLE")


async def test_writes_from_before_a_drop_can_be_undone_after_it_is_undone(tables: Tables) -> None:
    await set_up(tables)
    update = await tables.ask("PATCH", "/books/1", {"title": "changed"})
    action = await apply(tables, {"_drop": ["books"]})
    refusal = await undo(tables, update.headers["x-action-id"])
    assert (refusal.status, refusal.json["error"]["code"]) == (409, "UNDO_IMPOSSIBLE")
    assert "_schema" in refusal.json["error"]["remediation"]
    await undo(tables, action)
    assert (await undo(tables, update.headers["x-action-id"])).status == 200
    assert (await tables.list("books?id=eq.1"))[0]["title"] == "one"


async def test_a_drop_is_not_undone_over_what_came_later(tables: Tables) -> None:
    before = await set_up(tables)
    action = await apply(tables, {"_drop": ["books"]})
    await apply_plain(tables, {"tables": {"books": {"columns": ID}}})
    refusal = await undo(tables, action)
    assert (refusal.status, refusal.json["error"]["code"]) == (409, "UNDO_CONFLICT")
    # The remedy, obeyed literally:
    await apply_plain(tables, {"_renameTables": {"books": "later"}, "tables": {"later": {}}})
    assert (await undo(tables, action)).status == 200
    assert (await read_all(tables))[2]["books"] == before[2]["books"]
    column = await apply(tables, {"tables": {"books": {"_dropColumns": ["price", "double"], "checks": {"fair": None}}}})
    await tables.insert("books", {"title": "new"})
    answer = await undo(tables, column)
    assert "1 rows written since have none" in answer.json["warnings"][0]
    assert [row["price"] for row in await tables.list("books?order=id")] == ["9.50", "2.00", None]
    table = await apply(tables, {"tables": {"books": {"_dropColumns": ["tags"]}}})
    await apply(tables, {"_drop": ["books"]})
    refusal = await undo(tables, table)
    assert (refusal.status, refusal.json["error"]["code"]) == (409, "UNDO_CONFLICT")


async def apply_plain(tables: Tables, schema: Any) -> None:
    answer = await tables.ask("POST", "/schema/apply", {"schema": schema, "mode": "merge"})
    assert answer.status == 200, answer.content


async def test_rows_that_a_restored_reference_misses_are_refused(tables: Tables) -> None:
    await set_up(tables)
    action = await apply(tables, {"_drop": ["books"]})
    await tables.ask("DELETE", "/authors/1")
    refusal = await undo(tables, action)
    assert refusal.status in (400, 409)
    assert "books" not in (await tables.ask("GET", "/schema")).json["schema"]["tables"]


async def test_what_cannot_be_kept_is_said(tables: Tables) -> None:
    columns = {"a": "text", "b": "text"}
    await tables.apply({"plain": {"columns": columns}})
    schema = {"tables": {"plain": {"_dropColumns": ["b"]}}}
    answer = await tables.ask("POST", "/schema/apply", {"schema": schema, "mode": "merge"})
    assert "no key" in answer.json["warnings"][0]
    assert "action_id" not in answer.json
    change = (await tables.ask("GET", "/data-changes?table=_schema")).json["changes"][0]
    assert (await undo(tables, change["action_id"])).json["error"]["code"] == "UNDO_IMPOSSIBLE"


async def list_kept(tables: Tables) -> list[str]:
    store = tables.world.application.services.stores_of("local").data
    if store.dialect == "sqlite":
        text = "SELECT name FROM sqlite_master WHERE name LIKE '~_dropped%' ESCAPE '~'"
        values: tuple[str, ...] = ()
    else:
        text = "SELECT tablename FROM pg_tables WHERE schemaname = ? AND tablename LIKE '~_dropped%' ESCAPE '~'"
        values = (tables.app.id,)
    return [row[0] for row in await store.read(tables.app.id, lambda statements: statements.rows(text, *values))]


async def test_kept_values_go_with_the_log(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    await set_up(tables)
    action = await apply(tables, {"_drop": ["books"]})
    assert len(await list_kept(tables)) == 1
    await undo(tables, action)
    assert await list_kept(tables) == []
    action = await apply(tables, {"_drop": ["books"]})
    services = tables.world.application.services
    later = services.clock.now() + timedelta(days=8)
    monkeypatch.setattr(type(services.clock), "now", lambda _: later)
    refusal = await undo(tables, action)
    assert (refusal.status, refusal.json["error"]["code"]) == (404, "UNDO_NOT_FOUND")
    job: Any = SimpleNamespace(services=services)
    await data_sweep(job)
    assert await list_kept(tables) == []


async def test_a_drop_that_is_too_large_to_keep_is_said_before_it_is_made(tables: Tables) -> None:
    await set_up(tables)
    options = tables.world.application.services.options
    object.__setattr__(options, "undo_bytes", 100)
    try:
        schema = {"schema": {"_drop": ["books"]}, "mode": "merge"}
        dry = await tables.ask("POST", "/schema/apply", {**schema, "dry_run": True})
        assert "`books` cannot be brought back" in dry.json["warnings"][0]
        assert (
            "`books` cannot be brought back" in (await tables.ask("POST", "/schema/apply", schema)).json["warnings"][0]
        )
    finally:
        object.__setattr__(options, "undo_bytes", 64 * 2**20)
    assert await list_kept(tables) == []
