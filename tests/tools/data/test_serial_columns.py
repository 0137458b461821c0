"""Serial columns: the numbers that rows get follow those that rows bring with them, whichever way they come."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from baobab.server import Server
from tests.http.installation import Installation
from tests.tools.data.conftest import Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTES: dict[str, Any] = {"columns": {"id": {"type": "serial", "primaryKey": True}, "name": "text"}}


@pytest.fixture
async def notes(tables: Tables) -> Tables:
    await tables.apply({"notes": NOTES})
    await tables.insert("notes", {"name": "first"})
    return tables


async def add(tables: Tables) -> int:
    answer = await tables.ask("POST", "/notes", {"name": "next"})
    assert answer.status == 201, answer.content
    number: int = answer.json["id"]
    return number


async def insert_one(tables: Tables) -> None:
    await tables.insert("notes", {"id": 5, "name": "x"})


async def insert_a_list(tables: Tables) -> None:
    rows = await tables.insert("notes", {"name": "a"}, {"id": 4, "name": "b"}, {"name": "c"})
    assert sorted(row["id"] for row in rows) == [4, 5, 6]


async def upsert(tables: Tables) -> None:
    await tables.ask("POST", "/notes?on_conflict=id", [{"id": 1, "name": "again"}, {"id": 5, "name": "x"}])


async def ignore_duplicates(tables: Tables) -> None:
    prefer = "resolution=ignore-duplicates"
    await tables.ask("POST", "/notes?on_conflict=id", [{"id": 1}, {"id": 5}], prefer=prefer)


async def batch(tables: Tables) -> None:
    writes = [{"op": "insert", "table": "notes", "values": {"id": 5}}, {"op": "insert", "table": "notes", "values": {}}]
    answer = await tables.ask("POST", "/data-batch", {"writes": writes})
    assert [each["rows"][0]["id"] for each in answer.json["results"]] == [5, 6]


async def import_csv(tables: Tables) -> None:
    path = f"{tables.base}/data-import/notes"
    answer = await tables.world.ask("POST", path, tables.world.owner, content=b"id,name\n5,x\n")
    assert answer.json["written"] == 1


async def change_the_number(tables: Tables) -> None:
    assert (await tables.ask("PATCH", "/notes/1", {"id": 5})).status == 200


async def undo_a_deletion(tables: Tables) -> None:
    await tables.insert("notes", {"id": 5, "name": "x"})
    answer = await tables.ask("DELETE", "/notes/5")
    action = dict(answer.headers)["x-action-id"]
    assert (await tables.ask("POST", "/data-changes/undo", {"action_id": action})).status == 200


WAYS: list[Callable[[Tables], Awaitable[None]]] = [
    insert_one,
    insert_a_list,
    upsert,
    ignore_duplicates,
    batch,
    import_csv,
    change_the_number,
    undo_a_deletion,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_numbers_go_on_after_the_largest_that_a_row_has_brought(
    notes: Tables, way: Callable[[Tables], Awaitable[None]]
) -> None:
    await way(notes)
    largest = max(row["id"] for row in await notes.list("notes"))
    assert [await add(notes) for _ in range(3)] == [largest + 1, largest + 2, largest + 3]


@pytest.mark.parametrize("kind", ["smallserial", "serial", "bigserial"])
async def test_one_row_with_the_largest_number_leaves_all_others_their_numbers(tables: Tables, kind: str) -> None:
    await tables.apply({"notes": {"columns": {"id": {"type": kind, "primaryKey": True}, "name": "text"}}})
    largest = 2 ** {"smallserial": 15, "serial": 31, "bigserial": 63}[kind] - 1
    for _ in range(2):
        await tables.insert("notes", {"id": largest, "name": "greedy"}, {"name": "modest"})
        assert int(await add(tables)) < 10
        await tables.ask("DELETE", f"/notes/{largest}")


async def test_numbers_beyond_the_middle_step_over_those_that_are_taken(tables: Tables) -> None:
    await tables.apply({"notes": {"columns": {"id": {"type": "smallserial", "primaryKey": True}, "name": "text"}}})
    middle = (2**15 - 1) // 2
    await tables.insert("notes", {"id": middle}, {"id": middle + 1}, {"id": middle + 3}, {"id": middle + 5})
    await tables.insert("notes", {"name": "a"}, {"id": middle + 6}, {"name": "b"})
    assert {row["id"] - middle for row in await tables.list("notes?name=not.is.null")} == {2, 4}
    assert await add(tables) == middle + 7


async def test_a_column_without_numbers_left_says_so(tables: Tables) -> None:
    await tables.apply({"notes": {"columns": {"id": {"type": "smallserial", "primaryKey": True}, "name": "text"}}})
    answer = await tables.ask("POST", "/notes", [{"id": number} for number in range(32_760, 2**15)])
    assert answer.status == 201
    store = tables.world.application.services.stores_of("local").data
    sequences = store.name_table(tables.app.id, "_sequences")
    text = f"INSERT INTO {sequences} (name, last) VALUES (?, ?)"  # noqa: S608
    await store.write(tables.app.id, lambda statements: statements.rows(text, "notes.id", 32_758))
    assert await add(tables) == 32_759
    answer = await tables.ask("POST", "/notes", {"name": "too many"})
    assert (answer.status, answer.json["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")


async def test_two_servers_that_write_at_once_give_no_number_twice(notes: Tables) -> None:
    server = Server(notes.world.application.settings)
    async with server.open() as application:
        other = Tables(Installation(server, application), notes.app)

        async def write(by: Tables, start: int) -> None:
            for number in range(start, start + 40, 2):
                assert (await by.ask("POST", "/notes?on_conflict=id", {"id": number, "name": "own"})).status == 201
                await add(by)

        await asyncio.gather(write(notes, 10), write(other, 11))
    numbers = [row["id"] for row in await notes.list("notes")]
    assert await add(notes) > max(numbers)
