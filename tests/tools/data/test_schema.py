"""The schema of an app: applied as a whole or not at all, and never losing data unasked."""

import asyncio
from typing import Any

import pytest

from tests.tools.data.conftest import POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

ID = {"id": {"type": "integer", "primaryKey": True}}


async def test_what_is_applied_is_what_is_shown_and_applying_it_again_does_nothing(tables: Tables) -> None:
    answer = await tables.apply({"posts": POSTS}, name="add posts")
    assert answer["applied"] >= 2
    assert answer["_meta"]["resource_info"] == {"table_count": 1, "tables": ["posts"]}
    shown_schema = (await tables.ask("GET", "/schema")).json
    assert shown_schema["app_id"] == tables.app.id
    columns = shown_schema["schema"]["tables"]["posts"]["columns"]
    assert columns["id"] == {"type": "uuid", "primaryKey": True, "nullable": False, "default": "gen_random_uuid()"}
    assert shown_schema["schema"]["tables"]["posts"]["indexes"]["posts_user"]["columns"] == ["user_id"]
    again = await tables.apply(shown_schema["schema"]["tables"])
    assert (again["applied"], again["statements"]) == (0, [])
    description = (await tables.ask("GET", "/schema/posts")).json
    assert (description["key"], description["row_level_security"]) == (["id"], True)


async def test_a_dry_run_tells_and_changes_nothing(tables: Tables) -> None:
    dry = await tables.apply({"posts": POSTS}, dry_run=True)
    assert dry["dry_run"] is True
    assert dry["statements"][0]["sql"].startswith("CREATE TABLE")
    assert dry["statements"][0]["destructive"] is False
    assert (await tables.ask("GET", "/schema")).json["schema"]["tables"] == {}
    assert (await tables.ask("GET", "/migrations")).json["migrations"] == []


async def test_migrations_are_listed_newest_first(tables: Tables) -> None:
    await tables.apply({"a": {"columns": ID}}, name="first")
    await tables.apply({"a": {"columns": {**ID, "b": "text"}}}, name="second")
    migration_list = (await tables.ask("GET", "/migrations")).json
    assert [row["description"] for row in migration_list["migrations"]] == ["second", "first"]
    assert "ADD COLUMN" in migration_list["migrations"][0]["applied_sql"][0]


async def test_nothing_is_dropped_that_the_document_does_not_name(tables: Tables) -> None:
    await tables.apply({"a": {"columns": {**ID, "b": "text", "c": "text"}}, "gone": {"columns": ID}})
    await tables.insert("a", {"id": 1, "b": "kept", "c": "x"})
    refusal = await tables.ask("POST", "/schema/apply", {"schema": {"tables": {"a": {"columns": ID}}}})
    assert (refusal.status, refusal.json["error"]["code"]) == (400, "SCHEMA_DESTRUCTIVE_CHANGE")
    assert refusal.json["error"]["details"]["changes"] == [
        {"change": "drop the table gone", "authorise": '"_drop": ["gone"]'}
    ]
    assert refusal.json["error"]["message"].startswith(
        "The schema leaves out `gone`, which would be dropped with its rows"
    )
    assert refusal.json["error"]["remediation"].startswith("You left out `gone`: send it too")
    await tables.apply({"a": {"columns": ID, "_dropColumns": ["c"]}}, drop=["gone"])
    assert await tables.list("a") == [{"id": 1, "b": "kept"}]
    assert (await tables.ask("GET", "/gone")).status == 404


async def test_a_changed_type_is_refused_unless_every_value_fits_it(tables: Tables) -> None:
    await tables.apply({"a": {"columns": {**ID, "n": "smallint", "t": "varchar(3)"}}})
    await tables.insert("a", {"id": 1, "n": 5, "t": "abc"})
    await tables.apply({"a": {"columns": {**ID, "n": "bigint", "t": "text"}}})
    await tables.insert("a", {"id": 2, "n": 2**40, "t": "longer"})
    refusal = await tables.ask("POST", "/schema/apply", {"schema": {"tables": {"a": {"columns": {**ID, "n": "text"}}}}})
    assert refusal.json["error"]["code"] == "SCHEMA_DESTRUCTIVE_CHANGE"
    assert "_dropColumns" in refusal.json["error"]["details"]["changes"][0]["authorise"]


async def test_a_new_column_fills_the_rows_that_are_there_with_its_default(tables: Tables) -> None:
    await tables.apply({"a": {"columns": ID}})
    await tables.insert("a", {"id": 1}, {"id": 2})
    new = {
        "n": {"type": "integer", "nullable": False, "default": 7},
        "u": {"type": "uuid", "default": "gen_random_uuid()"},
    }
    await tables.apply({"a": {"columns": {**ID, **new}}})
    rows = await tables.list("a?order=id")
    assert [row["n"] for row in rows] == [7, 7]
    assert len({row["u"] for row in rows}) == 2


async def test_a_column_that_rows_leave_empty_cannot_be_required_and_nothing_is_half_done(tables: Tables) -> None:
    await tables.apply({"a": {"columns": {**ID, "b": "text"}}})
    await tables.insert("a", {"id": 1})
    wanted_tables = {"new": {"columns": ID}, "a": {"columns": {**ID, "b": {"type": "text", "nullable": False}}}}
    refusal = await tables.ask("POST", "/schema/apply", {"schema": {"tables": wanted_tables}})
    assert refusal.json["error"]["code"] == "SCHEMA_MIGRATION_FAILED"
    assert refusal.json["error"]["details"] == {"table": "a", "column": "b", "existing_row_count": 1}
    assert set((await tables.ask("GET", "/schema")).json["schema"]["tables"]) == {"a"}
    await tables.ask("PATCH", "/a/1", {"b": "x"})
    await tables.apply(wanted_tables)
    assert (await tables.ask("POST", "/a", {"id": 2})).json["error"]["code"] == "VALIDATION_NOT_NULL_VIOLATION"


async def test_references_are_added_changed_and_enforced(tables: Tables) -> None:
    await tables.apply({"parents": {"columns": ID}, "children": {"columns": {**ID, "parent": "integer"}}})
    await tables.insert("parents", {"id": 1})
    await tables.insert("children", {"id": 1, "parent": 1}, {"id": 2, "parent": 9})
    reference = {"type": "integer", "references": {"table": "parents", "column": "id", "onDelete": "CASCADE"}}
    wanted_tables = {"parents": {"columns": ID}, "children": {"columns": {**ID, "parent": reference}}}
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": wanted_tables}})
    assert answer.json["error"]["code"] == "VALIDATION_FOREIGN_KEY_VIOLATION"
    await tables.ask("DELETE", "/children/2")
    await tables.apply(wanted_tables)
    assert len(await tables.list("children")) == 1
    assert (await tables.ask("POST", "/children", {"id": 3, "parent": 9})).status == 400
    await tables.ask("DELETE", "/parents/1")
    assert await tables.list("children") == []


async def test_a_unique_column_is_added_and_taken_back(tables: Tables) -> None:
    await tables.apply({"a": {"columns": {**ID, "b": "text"}}})
    await tables.insert("a", {"id": 1, "b": "x"}, {"id": 2, "b": "x"})
    wanted_tables = {"a": {"columns": {**ID, "b": {"type": "text", "unique": True}}}}
    refusal = await tables.ask("POST", "/schema/apply", {"schema": {"tables": wanted_tables}})
    assert (refusal.status, refusal.json["error"]["code"]) == (409, "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION")
    await tables.ask("PATCH", "/a/2", {"b": "y"})
    await tables.apply(wanted_tables)
    assert (await tables.ask("POST", "/a", {"id": 3, "b": "y"})).status == 409
    await tables.apply({"a": {"columns": {**ID, "b": "text"}}})
    assert (await tables.ask("POST", "/a", {"id": 3, "b": "y"})).status == 201


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"tables": {"Posts": {"columns": ID}}}, "VALIDATION_INVALID_NAME"),
        ({"tables": {"a b": {"columns": ID}}}, "VALIDATION_INVALID_NAME"),
        ({"tables": {'a"; DROP TABLE x; --': {"columns": ID}}}, "VALIDATION_INVALID_NAME"),
        ({"tables": {"_mine": {"columns": ID}}}, "VALIDATION_RESERVED_TABLE"),
        ({"tables": {"sqlite_mine": {"columns": ID}}}, "VALIDATION_RESERVED_TABLE"),
        ({"tables": {"data": {"columns": ID}}}, "VALIDATION_INVALID_NAME"),
        ({"tables": {"a": {"columns": {"x y": "text"}}}}, "VALIDATION_INVALID_NAME"),
        ({"tables": {"a": {"columns": {}}}}, "VALIDATION_INVALID_SCHEMA"),
        ({"tables": {"a": {}}}, "VALIDATION_INVALID_SCHEMA"),
        ({"tables": []}, "VALIDATION_INVALID_SCHEMA"),
        ({"tabels": {}}, "VALIDATION_INVALID_SCHEMA"),
        ({"tables": {"a": {"columns": {"b": "money"}}}}, "VALIDATION_INVALID_SCHEMA"),
        ({"tables": {"a": {"columns": {"b": "text; drop table a"}}}}, "VALIDATION_INVALID_SCHEMA"),
        (
            {"tables": {"a": {"columns": {"b": {"type": "text", "default": "pg_sleep(9)"}}}}},
            "VALIDATION_INVALID_SCHEMA",
        ),
        ({"tables": {"a": {"columns": {"b": {"type": "integer", "default": "'x'"}}}}}, "VALIDATION_INVALID_SCHEMA"),
        (
            {"tables": {"a": {"columns": {"b": {"type": "integer", "references": "c.id"}}}}},
            "VALIDATION_TABLE_NOT_FOUND",
        ),
        (
            {"tables": {"a": {"columns": {**ID, "b": {"type": "text", "references": "a.id"}}}}},
            "VALIDATION_INVALID_SCHEMA",
        ),
        ({"tables": {"a": {"columns": ID, "indexes": {"i": {"columns": ["nope"]}}}}}, "VALIDATION_INVALID_SCHEMA"),
        ({"tables": {"a": {"columns": ID, "colour": 1}}}, "VALIDATION_INVALID_SCHEMA"),
        (
            {
                "tables": {
                    "a": {"columns": {**ID, "b": {"type": "integer", "references": "b.id"}}},
                    "b": {"columns": {**ID, "a": {"type": "integer", "references": "a.id"}}},
                }
            },
            "VALIDATION_INVALID_SCHEMA",
        ),
    ],
)
async def test_a_schema_that_cannot_be_is_refused_with_its_reason(tables: Tables, schema: Any, code: str) -> None:
    answer = await tables.ask("POST", "/schema/apply", {"schema": schema})
    assert (answer.status, answer.json["error"]["code"]) == (400, code), answer.content
    assert (await tables.ask("GET", "/schema")).json["schema"]["tables"] == {}


async def test_a_bare_text_is_the_default_of_a_column_of_texts(tables: Tables) -> None:
    state = {"type": "text", "default": "in progress"}
    await tables.apply({"orders": {"columns": {**ID, "state": state, "quoted": {"type": "text", "default": "'new'"}}}})
    row = (await tables.ask("POST", "/orders", {"id": 1})).json
    assert (row["state"], row["quoted"]) == ("in progress", "new")


@pytest.mark.parametrize(("kind", "default"), [("text", "now"), ("text", "current_user_id"), ("date", "tomorrow")])
async def test_a_default_that_may_be_meant_otherwise_is_refused_with_the_text_to_write(
    tables: Tables, kind: str, default: str
) -> None:
    schema = {"tables": {"orders": {"columns": {**ID, "state": {"type": kind, "default": default}}}}}
    answer = await tables.ask("POST", "/schema/apply", {"schema": schema})
    assert answer.json["error"]["message"].endswith(f"Write the text as `'{default}'`, with its quotes.")


async def test_an_app_has_at_most_fifty_tables(tables: Tables) -> None:
    many = {f"t{n}": {"columns": ID} for n in range(51)}
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": many}})
    assert (answer.status, answer.json["error"]["code"]) == (402, "QUOTA_TABLE_LIMIT")


async def test_two_schemas_at_once_come_one_after_the_other(tables: Tables) -> None:
    await tables.apply({"a": {"columns": ID}})

    async def add(name: str) -> int:
        wanted_tables = {"a": {"columns": {**ID, name: "text"}}}
        return (await tables.ask("POST", "/schema/apply", {"schema": {"tables": wanted_tables}})).status

    assert set(await asyncio.gather(*(add(f"c{n}") for n in range(5)))) == {200}
    columns = (await tables.ask("GET", "/schema")).json["schema"]["tables"]["a"]["columns"]
    assert set(columns) == {"id", *(f"c{n}" for n in range(5))}
    assert len((await tables.ask("GET", "/migrations")).json["migrations"]) == 6


async def test_rows_are_written_while_the_schema_changes(tables: Tables) -> None:
    await tables.apply({"a": {"columns": {"id": {"type": "serial", "primaryKey": True}}}})
    statuses: list[int] = []

    async def write() -> None:
        statuses.extend([(await tables.ask("POST", "/a", {})).status for _ in range(15)])

    async def alter() -> None:
        for n in range(5):
            await tables.apply({"a": {"columns": {"id": {"type": "serial", "primaryKey": True}, f"c{n}": "text"}}})

    await asyncio.gather(write(), write(), alter())
    assert set(statuses) == {201}
    assert [row["id"] for row in await tables.list("a?order=id")] == list(range(1, 31))


async def test_users_and_visitors_see_no_schema(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    user = await tables.user("11111111-1111-4111-8111-111111111111")
    for path in ("/schema", "/schema/posts", "/migrations", "/rls"):
        assert (await tables.ask("GET", path, by=user)).status == 403
        assert (await tables.ask("GET", path, by={})).status == 401


async def test_a_schema_that_is_a_text_is_refused_in_words_of_json(tables: Tables) -> None:
    refusal = await tables.ask("POST", "/schema/apply", {"schema": '{"tables": {}}'})
    assert (refusal.status, refusal.json["message"]) == (400, "`schema`: input should be an object.")


async def test_a_column_is_not_dropped_and_described_at_once(tables: Tables) -> None:
    both = {"columns": {**ID, "c": {"type": "text"}}}
    await tables.apply({"a": both})
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": {"a": {**both, "_dropColumns": ["c"]}}}})
    assert answer.status == 400
    assert answer.json["error"]["message"] == "`a.c` is both dropped and described."
