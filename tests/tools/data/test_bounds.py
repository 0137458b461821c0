"""What strangers and developers put into tables and ask of them has an end, in bytes."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from baobab.tools.core.limits import plans
from tests.tools.data.conftest import Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

_NOTES: dict[str, Any] = {
    "columns": {"id": {"type": "integer", "primaryKey": True}, "text": {"type": "text"}, "kind": {"type": "text"}}
}
_LINES: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "note": {"type": "integer", "references": {"table": "notes", "column": "id", "onDelete": "CASCADE"}},
        "text": {"type": "text"},
    }
}


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes that the plan of the tests gives to an app's rows."""
    monkeypatch.setitem(plans.PLANS, "enterprise", replace(plans.PLANS["enterprise"], table_bytes=10_000))
    return 10_000


@pytest.fixture
async def notes(tables: Tables) -> Tables:
    await tables.apply({"notes": _NOTES, "lines": _LINES})
    return tables


async def _fill(notes: Tables) -> int:
    """Inserts rows until one is refused, and returns how many there are."""
    for number in range(1, 100):
        answer = await notes.ask("POST", "/notes", {"id": number, "text": "x" * 1000})
        if answer.status != 201:
            assert answer.status == 402
            assert answer.json["error"]["code"] == "QUOTA_STORAGE_EXCEEDED"
            assert answer.json["error"]["details"]["limit_bytes"] == 10_000
            return number - 1
    raise AssertionError("nothing was refused")


async def test_rows_have_room_up_to_what_the_plan_gives_and_what_is_deleted_makes_room(
    room: int, notes: Tables
) -> None:
    note_count = await _fill(notes)
    assert note_count == 9
    assert len(await notes.list("notes")) == note_count
    assert (await notes.ask("PATCH", "/notes/1", {"text": "y" * 2000})).status == 402
    assert (await notes.ask("PATCH", "/notes/1", {"text": "y" * 1000})).status == 200
    assert (await notes.ask("DELETE", "/notes/1")).status == 200
    assert (await notes.ask("PATCH", "/notes/2", {"text": "y" * 1500})).status == 200
    assert (await notes.ask("POST", "/notes", {"id": 1, "text": "x" * 1000})).status == 402


async def test_callers_who_insert_at_once_do_not_pass_the_room_together(room: int, notes: Tables) -> None:
    bodies = [{"id": number, "text": "x" * 1000} for number in range(30)]
    answers = await asyncio.gather(*(notes.ask("POST", "/notes", body) for body in bodies))
    assert sorted({answer.status for answer in answers}) == [201, 402]
    assert [answer.status for answer in answers].count(201) == 9


async def test_what_a_reference_deletes_an_upsert_replaces_and_a_schema_changes_is_counted(
    room: int, notes: Tables
) -> None:
    await notes.insert("notes", {"id": 1, "text": "short"})
    for _ in range(8):
        await notes.insert("lines", {"note": 1, "text": "x" * 1000})
    assert (await notes.ask("POST", "/lines", {"note": 1, "text": "x" * 2000})).status == 402
    assert (await notes.ask("DELETE", "/notes/1")).status == 200
    assert await _fill(notes) == 9
    upsert = await notes.ask("POST", "/notes?on_conflict=id", {"id": 1, "text": "x"})
    assert upsert.status == 201
    assert (await notes.ask("POST", "/notes", {"id": 50, "text": "x" * 900})).status == 201
    wider = {**_NOTES, "columns": {**_NOTES["columns"], "more": {"type": "text", "default": "'" + "m" * 900 + "'"}}}
    refusal = await notes.ask("POST", "/schema/apply", {"schema": {"tables": {"notes": wider, "lines": _LINES}}})
    assert refusal.status == 402, refusal.content
    assert "more" not in (await notes.list("notes"))[0]
    narrow = {"columns": {"id": _NOTES["columns"]["id"]}, "_dropColumns": ["text", "kind"]}
    await notes.apply({"notes": narrow, "lines": _LINES})
    await notes.insert("lines", {"text": "x" * 8000})
    await notes.apply({"notes": narrow}, drop=["lines"])
    await notes.apply({"notes": narrow, "lines": _LINES})
    await notes.insert("lines", {"text": "x" * 8000})


async def test_tables_and_columns_with_the_names_that_the_count_itself_uses_are_counted(
    room: int, tables: Tables
) -> None:
    names = ("added", "gone", "bytes", "usage", "new_rows", "old_rows")
    columns = {"id": {"type": "integer", "primaryKey": True}, **{name: {"type": "text"} for name in names}}
    for table in ("usage", "new_rows"):
        await tables.apply({"usage": {"columns": columns}, "new_rows": {"columns": columns}})
        await tables.insert(table, {"id": 1, **dict.fromkeys(names, "x" * 1000)})
        assert (await tables.ask("POST", f"/{table}", {"id": 2, "gone": "x" * 4000})).status == 402
        assert (await tables.ask("PATCH", f"/{table}/1", dict.fromkeys(names, "short"))).status == 200
        assert (await tables.ask("POST", f"/{table}", {"id": 2, "gone": "x" * 4000})).status == 201
        assert (await tables.ask("DELETE", f"/{table}?id=gt.0")).status == 200


async def test_an_index_counts_as_much_as_what_it_holds(room: int, tables: Tables) -> None:
    columns = {"id": {"type": "integer", "primaryKey": True}, "text": {"type": "text"}}
    indexes = {f"i{number}": {"columns": ["text"]} for number in range(9)}
    await tables.apply({"words": {"columns": columns, "indexes": indexes}})
    assert (await tables.ask("POST", "/words", {"id": 1, "text": "abcd" * 200})).status == 201
    assert (await tables.ask("POST", "/words", {"id": 2, "text": "abce" * 200})).status == 402


async def test_an_answer_of_more_than_sixteen_megabytes_is_refused_and_says_what_to_do(notes: Tables) -> None:
    for number in range(20):
        await notes.insert("notes", {"id": number, "text": "x" * 1_000_000, "kind": "a" if number < 10 else "b"})
    for query in ("notes", "notes?select=text&order=id.desc", "notes?select=id,text&limit=17"):
        answer = await notes.ask("GET", f"/{query}")
        assert answer.status == 413, query
        assert answer.json["error"]["code"] == "DATA_ANSWER_TOO_LARGE"
        assert "limit" in answer.json["error"]["remediation"]
    assert len(await notes.list("notes?limit=10")) == 10
    assert len(await notes.list("notes?select=id,kind")) == 20
    # A write answers rows too: it is undone with its answer, and may ask for less.
    assert (await notes.ask("PATCH", "/notes?id=gte.0", {"kind": "c"})).status == 413
    assert await notes.list("notes?kind=eq.c&select=id") == []
    changed_answer = await notes.ask("PATCH", "/notes?id=gte.0&select=id", {"kind": "c"})
    assert len(changed_answer.json) == 20
    assert (await notes.ask("DELETE", "/notes?id=gte.0", prefer="return=minimal")).status == 204


async def test_embedded_rows_are_a_part_of_the_answer(notes: Tables) -> None:
    await notes.insert("notes", {"id": 1, "text": "one"})
    for _ in range(18):
        await notes.insert("lines", {"note": 1, "text": "x" * 1_000_000})
    assert (await notes.ask("GET", "/notes?select=id,lines(text)")).status == 413
    assert (await notes.ask("GET", "/notes?select=id,lines(id)")).status == 200


async def test_a_row_that_many_rows_embed_counts_each_time_that_it_is_answered(notes: Tables) -> None:
    # Read once each, these are 100 KB; as an answer they would be gigabytes.
    await notes.insert("notes", {"id": 1, "text": "x" * 1000})
    await notes.insert("lines", *({"note": 1, "text": "y" * 100} for _ in range(1000)))
    for query in ("limit=1000&select=id,notes(lines(text))", "select=notes(id,lines(id,notes(id,lines(id))))"):
        answer = await notes.ask("GET", f"/lines?{query}")
        assert answer.status == 413, query
    assert len(await notes.list("lines?select=id,notes(text)&limit=1000")) == 1000
    assert len(await notes.list("lines?select=id,notes(lines(text))&limit=10")) == 10


async def test_a_query_embeds_a_few_tables(notes: Tables) -> None:
    beside = ",".join(f"a{number}:lines(id)" for number in range(21))
    within = ",".join(f"a{number}:lines(notes(lines(id)))" for number in range(7))
    for select in (beside, within):
        answer = await notes.ask("GET", f"/notes?select=id,{select}")
        assert answer.status == 400
        assert "20 related tables" in answer.json["error"]["message"]
