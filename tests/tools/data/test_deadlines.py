"""No filter or policy of a tenant holds anybody up: what is beyond a bound is refused, what takes long is stopped."""

from typing import Any
from urllib.parse import quote

import pytest

from baobab.storage.data import files
from tests.tools.data.conftest import ADA, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS: dict[str, Any] = {
    "columns": {
        "id": {"type": "integer", "primaryKey": True},
        "title": "text",
        "code": "varchar(20)",
        "tags": "text[]",
        "price": "numeric",
        "user_id": "uuid",
    },
    "indexes": {"by_title": {"columns": ["title"]}},
}


@pytest.fixture
async def texts(tables: Tables) -> Tables:
    await tables.apply({"texts": TEXTS})
    await tables.insert("texts", {"id": 1, "title": "abc", "tags": ["a"]}, {"id": 2, "title": "b%c", "tags": ["b"]})
    return tables


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("title=fts." + "!" * 3000 + "a", "nested at most"),
        ("order=" + ",".join(["id"] * 21), "ordered by at most 20"),
        ("title=like(all).{" + ",".join("%" * 1001) + "}", "at most"),
        ("title=eq(any).{" + ",".join("x" * 1001) + "}", "at most 1000 values"),
        ("title=like." + "a" * 201, "at most 200 characters"),
        ("title=ilike.x*" + "a" * 201, "at most 200 characters"),
        ("and=(" + ",".join(["title.wfts.a"] * 11) + ")", "at most 10 times"),
    ],
)
async def test_what_would_take_long_is_refused_with_its_bound(texts: Tables, query: str, said: str) -> None:
    for path in (f"/texts?{query}", f"/texts?select=id&{query}"):
        answer = await texts.ask("GET", path)
        assert answer.status == 400, answer.content
        assert said in answer.json["error"]["message"]
        assert answer.json["error"]["remediation"]


async def test_searches_of_embedded_tables_count_together(tables: Tables) -> None:
    child = {"columns": {**TEXTS["columns"], "text_id": {"type": "integer", "references": "texts.id"}}}
    await tables.apply({"texts": TEXTS, "replies": child})
    searches = ",".join(["title.wfts.a"] * 6)
    assert await tables.list(f"texts?select=id,replies(id)&and=({searches})") == []
    answer = await tables.ask("GET", f"/texts?select=id,replies(id)&and=({searches})&replies.and=({searches})")
    assert (answer.status, "at most 10 times" in answer.json["error"]["message"]) == (400, True)


async def test_long_lists_and_orders_within_the_bounds_are_answered(texts: Tables) -> None:
    values = ",".join(f"x{number}" for number in range(999))
    assert [row["id"] for row in await texts.list(f"texts?title=eq(any).{{{values},abc}}")] == [1]
    assert len(await texts.list(f"texts?title=neq(all).{{{values}}}&order=id")) == 2
    patterns = ",".join(f"x{number}*" for number in range(198))
    assert [row["id"] for row in await texts.list(f"texts?title=like(any).{{{patterns},a*}}")] == [1]
    assert len(await texts.list("texts?order=" + ",".join(["id"] * 20))) == 2


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        ("abc", [1]),
        ("a*", [1]),
        ("A*", []),
        ("b\\%*", [2]),
        ("b\\%c", [2]),
        ("*c", [1, 2]),
        ("_b*", [1]),
        ("b_c", [2]),
        ("", []),
        ("*", [1, 2]),
        ("\U0010ffff*", []),
        ("\ud7ff*", []),
    ],
)
async def test_a_pattern_finds_the_same_with_and_without_the_range_of_its_beginning(
    texts: Tables, pattern: str, ids: list[int]
) -> None:
    for query in (f"title=like.{pattern}", f"title=like(any).{{{pattern}}}"):
        if "any" not in query or pattern:
            assert [row["id"] for row in await texts.list(f"texts?{quote(query, safe='=')}&order=id")] == ids
    rest = [number for number in (1, 2) if number not in ids]
    assert [row["id"] for row in await texts.list(f"texts?title=not.like.{quote(pattern)}&order=id")] == rest


@pytest.mark.on_files
async def test_a_read_whose_functions_take_too_long_is_a_timeout_and_no_outage(
    texts: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline is over at once here: each function is stopped before its first call."""
    await texts.policy("texts", "some", using_expression="lower(title) like '%b%'")
    ada = await texts.user(ADA)
    assert len(await texts.list("texts", ada)) == 2
    monkeypatch.setattr(files, "_QUICK_SECONDS", 1e-9)
    assert len(await texts.list("texts", ada)) == 2
    monkeypatch.setattr(files, "_STATEMENT_SECONDS", 1e-9)
    for query in ("texts", "texts?select=count()", "texts/1"):
        answer = await texts.ask("GET", f"/{query}", None, ada)
        assert (answer.status, answer.json["error"]["code"]) == (504, "QUERY_TIMEOUT"), answer.content
    monkeypatch.undo()
    assert len(await texts.list("texts", ada)) == 2
