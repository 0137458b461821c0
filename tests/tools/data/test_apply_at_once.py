"""A schema is applied as a whole, whoever else applies one or writes rows at once, and wherever it is cut off."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from baobab.storage.data.store import DataStore
from baobab.storage.sql.database import Unit
from baobab.storage.sql.statements import Statements
from tests.tools.data.conftest import POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")
WIDER = {**POSTS, "columns": {**POSTS["columns"], "tags": {"type": "text[]"}, "rank": {"type": "serial"}}}
LINKS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "post": {"type": "uuid", "references": {"table": "posts", "column": "id", "onDelete": "CASCADE"}},
    },
    "indexes": {"links_post": {"columns": ["post"]}},
}


def _with_column(number: int) -> dict[str, Any]:
    return {**POSTS, "columns": {**POSTS["columns"], f"extra{number}": {"type": "integer", "default": str(number)}}}


async def test_schemas_that_are_applied_at_once_come_one_after_the_other(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.insert("posts", *({"title": f"Post {number}"} for number in range(20)))
    bodies = [{"schema": {"tables": {"posts": _with_column(number)}}, "name": f"add {number}"} for number in range(6)]
    inserts = [{"title": f"Meanwhile {number}"} for number in range(10)]
    answers = await asyncio.gather(
        *(tables.ask("POST", "/schema/apply", body) for body in bodies),
        *(tables.ask("POST", "/posts", body) for body in inserts),
    )
    assert {answer.status for answer in answers[:6]} == {200}, [answer.content for answer in answers[:6]]
    assert {answer.status for answer in answers[6:]} == {201}
    rows = await tables.list("posts?limit=1000")
    assert len(rows) == 30
    assert all(row[f"extra{number}"] in (number, None) for row in rows for number in range(6))
    assert all(
        row[f"extra{number}"] == number for row in rows if row["title"].startswith("Post") for number in range(6)
    )
    migrations = (await tables.ask("GET", "/migrations")).json["migrations"]
    assert sorted(each["description"] for each in migrations[:6]) == [f"add {number}" for number in range(6)]


async def test_a_table_that_two_drop_and_make_at_once_is_there_whole_or_not_at_all(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    drop = {"schema": {"tables": {}, "_drop": ["posts"]}}
    make = {"schema": {"tables": {"posts": POSTS}}}
    await asyncio.gather(*(tables.ask("POST", "/schema/apply", body) for body in [drop, make] * 5))
    for body in (make, drop, make):
        assert (await tables.ask("POST", "/schema/apply", body)).status == 200
    assert await tables.list("posts") == []
    assert len(await tables.insert("posts", {"title": "x"})) == 1


class CutOff(Exception):
    """Stands for the end of the process: what was going on is never gone on with."""


class _Cutting:
    """Statements, after some of which everything ends."""

    def __init__(self, statements: Statements, statements_left: int) -> None:
        self._statements = statements
        self._statements_left = statements_left

    def __getattr__(self, name: str) -> Any:
        if self._statements_left == 0:
            raise CutOff
        self._statements_left -= 1
        return getattr(self._statements, name)


class Scissors:
    """Cuts off the next change of tables after a number of statements."""

    def __init__(self, store: DataStore) -> None:
        self.after: int | None = None
        self._alter = store.alter
        store.alter = self._cut  # type: ignore[method-assign]

    async def _cut(self, app_id: str, work: Callable[[Statements], T], unit: Unit | None = None) -> T:
        after, self.after = self.after, None
        if after is None:
            return await self._alter(app_id, work, unit)
        return await self._alter(app_id, lambda statements: work(_Cutting(statements, after)), unit)


@pytest.fixture
def scissors(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Scissors:
    store = tables.world.application.services.regions["local"].data
    monkeypatch.setattr(store, "alter", store.alter)
    return Scissors(store)


async def test_an_apply_that_is_cut_off_at_any_statement_has_changed_nothing(
    tables: Tables, scissors: Scissors
) -> None:
    await tables.apply({"posts": POSTS})
    await tables.policy("posts", "open", command="SELECT", using_expression="public")
    rows = await tables.insert("posts", *({"title": f"Post {number}", "public": True} for number in range(3)))
    before = (await tables.ask("GET", "/schema")).json
    document = {"schema": {"tables": {"posts": WIDER, "links": LINKS}}}
    cuts = 0
    while True:
        scissors.after = cuts
        answer = await tables.ask("POST", "/schema/apply", document)
        if answer.status == 200:
            break
        assert answer.status == 500
        cuts += 1
        assert (await tables.ask("GET", "/schema")).json == before
        assert await tables.list("posts?order=title", by={}) == rows
        assert len((await tables.ask("GET", "/migrations")).json["migrations"]) == 1
    assert cuts > 15
    assert (await tables.insert("links", {"post": rows[0]["id"]}))[0]["id"] == 1
    assert [row["rank"] for row in await tables.list("posts?select=rank&limit=1")] == [None]
