"""The modes of schema_apply: `merge` changes only what a document names, and `exact` takes it for the whole."""

from typing import Any

import pytest

from tests.tools.data.conftest import POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

ID: dict[str, Any] = {"id": {"type": "integer", "primaryKey": True}}
SALON: dict[str, Any] = {
    "posts": {**POSTS, "checks": {"good": "score > 0"}, "_seed": True},
    "services": {"columns": {**ID, "name": {"type": "text", "unique": True}, "price": "numeric(8,2)"}},
    "staff": {"columns": {**ID, "service": {"type": "text", "references": "services.name"}}},
}
VIEWS = {"cheap": "select name as called from services where price < 20"}


async def merge(tables: Tables, schema: Any, **options: Any) -> Any:
    return await tables.ask("POST", "/schema/apply", {"schema": schema, "mode": "merge", **options})


async def read_schema(tables: Tables) -> Any:
    return (await tables.ask("GET", "/schema")).json["schema"]


async def set_up(tables: Tables) -> Any:
    await tables.ask("POST", "/schema/apply", {"schema": {"tables": SALON, "views": VIEWS}})
    policy = {"table_name": "posts", "policy_name": "all", "command": "SELECT", "using_expression": "score > 3"}
    await tables.ask("POST", "/rls/policies", policy)
    await tables.insert("services", {"id": 1, "name": "cut", "price": "10"})
    return await read_schema(tables)


async def test_merge_changes_only_what_it_names(tables: Tables) -> None:
    before = await set_up(tables)
    answer = await merge(tables, {"tables": {"posts": {"columns": {"phone": "text"}}, "rooms": {"columns": ID}}})
    assert [each["description"] for each in answer.json["statements"]] == [
        "create the table rooms", "add the column posts.phone"
    ]  # fmt: skip
    after = await read_schema(tables)
    assert after["tables"].pop("rooms")
    assert after["tables"]["posts"]["columns"].pop("phone") == {"type": "text", "nullable": True}
    assert after == before
    assert len((await tables.ask("GET", "/rls")).json["policies"]) == 1
    nothing = await merge(tables, {"tables": {"posts": {"columns": {"title": "text"}}, "services": {}}})
    assert nothing.json["applied"] == (await merge(tables, {})).json["applied"] == 0


async def test_null_removes_what_holds_no_data_and_refuses_to_drop_what_does(tables: Tables) -> None:
    await set_up(tables)
    part = {"columns": {"score": {"default": "1"}, "public": {"default": None}}, "indexes": {"posts_user": None}}
    schema = {"tables": {"posts": {**part, "checks": {"good": None}}}, "views": {"cheap": None}}
    assert (await merge(tables, schema)).status == 200
    after = await read_schema(tables)
    assert "views" not in after
    assert after["tables"]["posts"].keys() == {"columns", "_seed"}
    assert after["tables"]["posts"]["columns"]["score"] == {"type": "integer", "nullable": True, "default": "1"}
    assert "default" not in after["tables"]["posts"]["columns"]["public"]
    null_documents: list[Any] = [{"tables": {"posts": None}}, {"tables": {"posts": {"columns": {"score": None}}}}]
    for document in null_documents:
        refusal = await merge(tables, document)
        assert (refusal.status, refusal.json["error"]["code"]) == (400, "VALIDATION_INVALID_SCHEMA")
        assert "Leave it out to keep it" in refusal.json["error"]["remediation"]
    assert await read_schema(tables) == after


async def test_a_merged_rename_takes_along_whatever_names_the_column(tables: Tables) -> None:
    await set_up(tables)
    schema = {
        "_renameTables": {"services": "offers"},
        "tables": {"offers": {"_renameColumns": {"name": "title"}}, "posts": {"_renameColumns": {"score": "points"}}},
    }
    for _ in range(2):
        assert (await merge(tables, schema)).status == 200
    after = await read_schema(tables)
    assert after["tables"]["posts"]["checks"] == {"good": "points > 0"}
    assert after["tables"]["staff"]["columns"]["service"]["references"]["table"] == "offers"
    assert after["views"] == {"cheap": "select title as called from offers where price < 20"}
    assert await tables.list("offers") == [{"id": 1, "title": "cut", "price": "10.00"}]


async def test_dropping_in_merge_needs_its_own_word_and_takes_indexes_along(tables: Tables) -> None:
    await set_up(tables)
    schema = {"_drop": ["staff"], "tables": {"posts": {"_dropColumns": ["user_id"]}}}
    assert (await merge(tables, schema)).status == 200
    after = await read_schema(tables)
    assert after["tables"].keys() == {"posts", "services"}
    assert "indexes" not in after["tables"]["posts"]


async def test_what_exact_would_lose_is_named_whole_and_the_first_remedy_keeps_it(tables: Tables) -> None:
    await set_up(tables)
    one = {"posts": {"columns": {**POSTS["columns"], "phone": "text"}}}
    refusal = (await tables.ask("POST", "/schema/apply", {"schema": {"tables": one}})).json["error"]
    assert refusal["code"] == "SCHEMA_DESTRUCTIVE_CHANGE"
    assert "`services` and `staff`" in refusal["message"]
    assert refusal["remediation"].startswith("You left out `services` and `staff`: send them too")
    assert refusal["remediation"].index("mode: merge") < refusal["remediation"].index("_drop")
    assert [each["change"] for each in refusal["details"]["changes"]] == [
        "drop the table services", "drop the table staff"
    ]  # fmt: skip
    assert (await merge(tables, {"tables": one})).status == 200


async def test_a_new_name_beside_a_left_out_one_may_be_a_rename_and_the_answer_says_so(tables: Tables) -> None:
    await tables.apply({"notes": {"columns": {**ID, "note": "text"}}})
    await tables.insert("notes", {"id": 1, "note": "kept"})
    new_tables = {"notes": {"columns": {**ID, "remark": "text"}}}
    for mode in ("exact", "merge"):
        dry = await tables.apply(new_tables, mode=mode, dry_run=True)
        assert "If you meant to rename `note` to `remark`" in dry["warnings"][0]
    assert "If you meant to rename" in (await tables.apply(new_tables))["warnings"][0]
    # The warning, obeyed literally:
    await merge(tables, {"tables": {"notes": {"_dropColumns": ["remark"]}}})
    await merge(tables, {"tables": {"notes": {"_renameColumns": {"note": "remark"}}}})
    assert await tables.list("notes") == [{"id": 1, "remark": "kept"}]
    more = {"notes": {"columns": {"a": "text", "b": "text"}}}
    assert "warnings" not in await tables.apply(more, mode="merge")
    tables_of_today = {"rows": {"columns": ID}}
    refusal = (await tables.ask("POST", "/schema/apply", {"schema": {"tables": tables_of_today}})).json["error"]
    assert '"_renameTables": {"notes": "rows"}' in refusal["remediation"]


@pytest.mark.parametrize(
    "schema",
    [
        {"tables": []},
        {"tables": {"posts": "x"}},
        {"tables": {"posts": {"columns": []}}},
        {"tables": {"posts": {"indexes": "x"}}},
        {"tables": {"posts": {"columns": {"a": 3}}}},
        {"tables": {"posts": {"_dropColumns": "x"}}},
        {"tables": {"posts": {"_renameColumns": {"title": 3}}}},
        {"tables": {"posts": {"_renameColumns": {"nothing": "unknown"}}}},
        {"_drop": "posts"},
        {"_renameTables": []},
        {"_renameTables": {"posts": "services"}},
        {"tables": {"new": {}}},
        {"views": []},
        {"policies": {}},
    ],
)
async def test_what_is_no_schema_is_refused_in_both_modes(tables: Tables, schema: Any) -> None:
    before = await set_up(tables)
    for mode in ("merge", "exact"):
        refusal = await tables.ask("POST", "/schema/apply", {"schema": schema, "mode": mode})
        assert refusal.status == 400
        assert refusal.json["error"]["code"] in ("VALIDATION_INVALID_SCHEMA", "SCHEMA_DESTRUCTIVE_CHANGE")
    assert await read_schema(tables) == before
