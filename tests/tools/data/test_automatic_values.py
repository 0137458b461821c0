"""Columns that fill themselves: defaults by expression, what an update sets, and texts of a few values."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.tools.data.conftest import ADA, BEN, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASKS: dict[str, Any] = {
    "columns": {
        "id": {"type": "integer", "primaryKey": True},
        "title": "text",
        "status": {"type": "text", "enum": ["open", "it's done"], "default": "'open'"},
        "updated_at": {"type": "timestamptz", "default": "now()", "onUpdate": "now()"},
        "updated_by": {"type": "uuid", "onUpdate": "current_user_id()"},
        "role": {"type": "text", "default": "current_user_role()"},
        "due": {"type": "timestamptz", "default": "now() + interval '7 days'"},
    }
}
OLD = "2001-01-01T00:00:00+00:00"


@pytest.fixture
async def tasks(tables: Tables) -> Tables:
    """Two tasks that were written long ago."""
    await tables.apply({"tasks": TASKS})
    await tables.policy("tasks", "all", using_expression="true")
    await tables.insert("tasks", {"id": 1, "title": "a", "updated_at": OLD}, {"id": 2, "title": "b", "updated_at": OLD})
    return tables


async def test_defaults_are_evaluated_at_each_insert(tasks: Tables) -> None:
    ada = await tasks.user(ADA, role="editor")
    row = (await tasks.ask("POST", "/tasks", {"id": 3}, ada)).json
    assert (row["role"], row["status"], row["updated_by"]) == ("editor", "open", None)
    moments = [datetime.fromisoformat(row[name]) for name in ("updated_at", "due")]
    assert moments[1] - moments[0] == timedelta(days=7)


async def test_every_kind_of_update_sets_what_an_update_sets(tasks: Tables) -> None:
    ada = await tasks.user(ADA)
    writes = [{"op": "update", "table": "tasks", "where": {"id": "eq.1"}, "changes": {"title": "x"}}]
    requests: list[tuple[str, str, Any]] = [
        ("PATCH", "/tasks/1", {"title": "x"}),
        ("PATCH", "/tasks/1", {"title": "x", "updated_at": OLD, "updated_by": BEN}),
        ("PATCH", "/tasks/1", {"updated_at": OLD}),
        ("PATCH", "/tasks?id=eq.1", {"title": "x"}),
        ("POST", "/tasks?on_conflict=id", {"id": 1, "title": "x"}),
        ("POST", "/tasks?on_conflict=id", [{"id": 1, "title": "x", "updated_at": OLD}, {"id": 9, "title": "new"}]),
        ("POST", "/data-batch", {"writes": writes}),
    ]
    for method, path, body in requests:
        answer = await tasks.ask(method, path, body, ada)
        assert answer.status in (200, 201), answer.content
        [row] = await tasks.list("tasks?id=eq.1")
        assert (row["updated_at"] > OLD, row["updated_by"]) == (True, ADA), (method, path, body)
        action = dict(answer.pairs)["x-action-id"]
        assert (await tasks.ask("POST", "/data-changes/undo", {"action_id": action})).status == 200
        [row] = await tasks.list("tasks?id=eq.1")
        assert (row["title"], row["updated_at"], row["updated_by"]) == ("a", OLD, None)
    [untouched_row] = await tasks.list("tasks?id=eq.2")
    assert untouched_row["updated_at"] == OLD


async def test_an_import_that_updates_rows_sets_what_an_update_sets(tasks: Tables) -> None:
    path = f"{tasks.base}/data-import/tasks?on_conflict=id"
    content = f"id,title,updated_at\n1,x,{OLD}\n5,y,{OLD}\n".encode()
    assert (await tasks.world.ask("POST", path, tasks.world.owner, content=content)).json["written"] == 2
    rows = {row["id"]: row["updated_at"] for row in await tasks.list("tasks")}
    assert (rows[1] > OLD, rows[5], rows[2]) == (True, OLD, OLD)


async def test_an_upsert_that_leaves_a_row_as_it_is_is_no_update(tasks: Tables) -> None:
    await tasks.ask("POST", "/tasks?on_conflict=id", {"id": 1})
    await tasks.ask("POST", "/tasks?on_conflict=id", {"id": 2, "title": "x"}, prefer="resolution=ignore-duplicates")
    assert {row["updated_at"] for row in await tasks.list("tasks")} == {OLD}


async def test_the_document_shows_and_changes_what_an_update_sets(tasks: Tables) -> None:
    document = (await tasks.ask("GET", "/schema")).json["schema"]
    assert document["tables"]["tasks"]["columns"]["updated_at"]["onUpdate"] == "now()"
    assert document["tables"]["tasks"]["columns"]["status"]["enum"] == ["open", "it's done"]
    assert (await tasks.ask("POST", "/schema/apply", {"schema": document})).json["applied"] == 0
    columns = {**TASKS["columns"], "updated_at": {"type": "timestamptz"}}
    answer = await tasks.apply({"tasks": {"columns": columns}})
    descriptions = [each["description"] for each in answer["statements"]]
    assert "change what an update sets tasks.updated_at to" in descriptions
    await tasks.ask("PATCH", "/tasks/1", {"title": "x"})
    assert (await tasks.ask("GET", "/tasks/1")).json["updated_at"] == OLD


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"type": "text", "onUpdate": "lower(title)"}, "is not a number"),
        ({"type": "integer", "onUpdate": "now()"}, "`x`"),
        ({"type": "serial", "onUpdate": "1"}, "takes no `onUpdate`"),
        ({"type": "text", "onUpdate": 5}, "must be an expression"),
        ({"type": "timestamptz", "default": "now() + interval '1 month'"}, "is not a number"),
        ({"type": "integer", "enum": ["a"]}, "only a text has one"),
        ({"type": "text", "enum": []}, "1 to 100 different texts"),
        ({"type": "text", "enum": ["a", "a"]}, "1 to 100 different texts"),
        ({"type": "text", "enum": ["a"], "default": "'b'"}, "is not in its enum"),
    ],
)
async def test_what_a_column_cannot_become_is_refused(tables: Tables, column: Any, message: str) -> None:
    columns = {"id": {"type": "integer", "primaryKey": True}, "title": "text", "x": column}
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": {"t": {"columns": columns}}}})
    assert answer.status == 400
    assert message in answer.json["error"]["message"]


async def test_a_text_of_a_few_values_takes_no_other(tasks: Tables) -> None:
    for status in ("open", "it's done", None):
        assert (await tasks.ask("PATCH", "/tasks/1", {"status": status})).status == 200
    refusal = (await tasks.ask("PATCH", "/tasks/1", {"status": "lost"})).json["error"]
    assert refusal["code"] == "VALIDATION_CHECK_VIOLATION"
    assert refusal["details"]["check"] == "status"
    assert refusal["details"]["expression"] == "status in ('open', 'it's done')"
    more = {**TASKS["columns"], "status": {"type": "text", "enum": ["open", "it's done", "lost"]}}
    await tasks.apply({"tasks": {"columns": more}})
    assert (await tasks.ask("PATCH", "/tasks/1", {"status": "lost"})).status == 200
    answer = await tasks.ask("POST", "/schema/apply", {"schema": {"tables": {"tasks": TASKS}}})
    assert answer.json["error"]["code"] == "SCHEMA_MIGRATION_FAILED"
    assert answer.json["error"]["details"]["broken_checks"][0]["check"] == "status"
    plain = {**TASKS["columns"], "status": {"type": "text"}}
    await tasks.apply({"tasks": {"columns": plain}})
    assert (await tasks.ask("PATCH", "/tasks/1", {"status": "anything"})).status == 200
    columns = {name: column for name, column in plain.items() if name != "status"}
    await tasks.apply({"tasks": {"columns": columns, "_dropColumns": ["status"]}})
    assert len(await tasks.list("tasks")) == 2


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("createdAt", "Call it `created_at`: capital letters mean"),
        ("userID", "Call it `user_id`"),
        ("HTTPStatus", "Call it `http_status`"),
        ("first name", "Call it `first_name`."),
    ],
)
async def test_a_name_with_capital_letters_is_refused_with_the_name_to_use(
    tables: Tables, name: str, advice: str
) -> None:
    columns = {"id": {"type": "integer", "primaryKey": True}, name: "text"}
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": {"t": {"columns": columns}}}})
    assert (answer.status, answer.json["error"]["code"]) == (400, "VALIDATION_INVALID_NAME")
    assert answer.json["error"]["remediation"].startswith(advice)


async def test_a_write_by_filter_beyond_the_limit_says_how_to_go_on(tasks: Tables) -> None:
    for numbers in (range(100, 600), range(600, 1101)):
        await tasks.insert("tasks", *({"id": number} for number in numbers))
    refusal = await tasks.ask("PATCH", "/tasks?id=gte.100", {"title": "x"})
    assert (refusal.status, refusal.json["error"]["details"]["rows"]) == (400, 1001)
    assert "`Prefer: max-affected=1001`" in refusal.json["error"]["remediation"]
    assert await tasks.list("tasks?title=eq.x") == []
    prefer = "max-affected=1001, return=minimal"
    assert (await tasks.ask("PATCH", "/tasks?id=gte.100", {"title": "x"}, prefer=prefer)).status == 204
    answer = await tasks.ask("DELETE", "/tasks?title=eq.x", None, prefer="max-affected=1001")
    assert len(answer.json) == 1001


async def test_numbers_in_json_are_compared_as_numbers(tables: Tables) -> None:
    await tables.apply({"notes": {"columns": {"id": {"type": "integer", "primaryKey": True}, "j": "jsonb"}}})
    values: list[Any] = [10, 9, 9.5, -1, "10", True, None, [10], {"n": 10}, 1e30, 9007199254740993]
    await tables.insert("notes", *({"id": number, "j": {"k": value}} for number, value in enumerate(values)))

    async def find(condition: str) -> list[int]:
        return [row["id"] for row in await tables.list(f"notes?select=id&order=id&{condition}")]

    assert await find("j->k=gt.9") == [0, 2, 9, 10]
    assert await find("j->k=lte.9") == [1, 3]
    assert await find("j->k=gte.9.5&j->k=lt.11") == [0, 2]
    assert await find("j->k=not.gt.9") == [1, 3]
    assert await find("or=(j->k.gt.1000,j->k.lt.0)") == [3, 9, 10]
    assert await find("j->k->n=gt.9") == [8]
    assert await find("j->k=eq.9") == [1]
    answer = await tables.ask("GET", "/notes?j->k=gt.x")
    assert answer.status == 400
    assert "`->>`" in answer.json["error"]["remediation"]


async def test_either_or_over_related_rows_is_refused_with_what_to_do(tables: Tables) -> None:
    festivals = {"columns": {"id": {"type": "integer", "primaryKey": True}, "name": "text"}}
    acts = {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "name": "text",
            "festival_id": {"type": "integer", "references": "festivals.id"},
        }
    }
    await tables.apply({"festivals": festivals, "acts": acts})
    for condition in ("or=(acts.not.is.null,name.eq.x)", "or=(acts.is.null,name.eq.x)", "or=(acts.name.eq.x,id.eq.1)"):
        answer = await tables.ask("GET", f"/festivals?select=name,acts(name)&{condition}")
        assert answer.status == 400
        assert "not on related rows" in answer.json["error"]["message"]
        assert "`left join`" in answer.json["error"]["remediation"]
    answer = await tables.ask("GET", "/festivals?or=(nome.eq.x,id.eq.1)")
    assert "has no column `nome`" in answer.json["error"]["message"]
