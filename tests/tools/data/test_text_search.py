"""Searches in texts, as PostgREST's clients write them; the same rows on both databases."""

import json
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from tests.http.installation import Installation
from tests.tools.data.conftest import Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTES: dict[str, Any] = {"columns": {"id": {"type": "integer", "primaryKey": True}, "text": "text"}}
TEXTS = {
    1: "The quick foxes were jumping",
    2: "A slow dog runs, jumps & barks",
    3: "The cat in the hat",
    4: "Cats and hats",
    5: "fat-cat@example.com wrote 1.5 pages about superstars",
    6: "“Größe” … ÜBER alles",
    7: None,
    8: "",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def notes(world: Installation) -> Tables:
    tables = Tables(world, await world.create_app())
    await tables.apply({"notes": {**NOTES, "indexes": {"notes_words": {"columns": ["text"], "method": "fts"}}}})
    await tables.insert("notes", *({"id": number, "text": text} for number, text in TEXTS.items()))
    return tables


@pytest.mark.parametrize(
    ("search", "ids"),
    [
        ("fts.jump", [1, 2]),
        ("fts.fox quick", [1]),
        ("fts.'fox' | 'dog'", [1, 2]),
        ("fts.'jump' & !'dog'", [1]),
        ("fts.jump & (dog | cat)", [2]),
        ("fts.super:*", [5]),
        ("fts.cat <3> hat", [3]),
        ("fts.cat <-> hat", []),
        ("fts.cat <2> hat", [4]),
        ("fts.fat-cat", [5]),
        ("fts.'fat cat'", [5]),
        ("fts.(fat | slow) <-> (cat | dog)", [2, 5]),
        ("fts.the", []),
        ("fts.the & cat", [3, 4, 5]),
        ("fts.", []),
        ("fts(english).cats", [3, 4, 5]),
        ("not.fts.cat", [1, 2, 6, 8]),
        ("not.fts.the", [1, 2, 3, 4, 5, 6, 8]),
        ("plfts.dogs running", [2]),
        ("plfts.'cat' | !hat", [3, 4]),
        ("plfts.example", [5]),
        ("plfts.1", [5]),
        ("plfts.größe", [6]),
        ("plfts.über", [6]),
        ("phfts.cat in the hat", [3]),
        ("phfts.cats and hats", [4]),
        ("phfts.hat cat", []),
        ('wfts."cat in the hat" or dog', [2, 3]),
        ("wfts.jumping -dog", [1]),
        ('wfts.jump -"slow dog"', [1]),
        ("wfts.cat or", [3, 4, 5]),
        ('wfts."quick foxes', [1]),
        ("wfts.", []),
        ("wfts.& | ! ( :* <->", []),
    ],
)
async def test_a_search_finds_the_texts_that_fulfil_it(notes: Tables, search: str, ids: list[int]) -> None:
    found_notes = await notes.list(f"notes?select=id&order=id&text={quote(search)}")
    assert [row["id"] for row in found_notes] == ids


async def test_a_search_stands_among_other_conditions(notes: Tables) -> None:
    found_notes = await notes.list(f"notes?select=id&order=id&or={quote('(text.wfts.fox,text.fts.slow&dog,id.eq.8)')}")
    assert [row["id"] for row in found_notes] == [1, 2, 8]


@pytest.mark.parametrize(
    "search",
    ["fts.cat |", "fts.& cat", "fts.(cat", "fts.cat)", "fts.cat:A", "fts.'cat", "fts.cat <-> !dog", "fts.a1 <99999> b"],
)
async def test_what_is_no_search_is_refused_in_words(notes: Tables, search: str) -> None:
    refusal = await notes.ask("GET", f"/notes?text={quote(search)}")
    assert (refusal.status, refusal.json["error"]["code"]) == (400, "VALIDATION_INVALID_SCHEMA"), refusal.content
    assert refusal.json["error"]["details"]["invalidFilters"]


@pytest.mark.parametrize(
    ("condition", "message", "hint"),
    [
        ("fts(french).chat", "searched as English", "`fts`"),
        ("match.^a", "regular expressions", "ilike"),
        ("not.imatch.^a", "regular expressions", "ilike"),
        ("in(any).(a)", "take `(any)`", "column=operator.value"),
    ],
)
async def test_an_operator_that_there_is_not_names_what_there_is(
    notes: Tables, condition: str, message: str, hint: str
) -> None:
    refusal = await notes.ask("GET", f"/notes?text={quote(condition)}")
    assert refusal.status == 400
    assert message in refusal.json["message"]
    assert hint in refusal.json["hint"]


async def test_a_text_is_searched_as_far_as_it_is_said(notes: Tables) -> None:
    filler = " ".join(f"w{number}" for number in range(40_000))
    long = f"start {'x' * 3000} next {filler} behind"
    await notes.insert("notes", {"id": 9, "text": long})
    for search, is_found in (
        ("plfts.w100", True),
        ("phfts.start next", True),
        ("plfts.w39999", False),
        ("plfts.behind", False),
        ("phfts.w100 w101", True),
        ("phfts.w20000 w20001", False),
        ("plfts.w20000 w20001", True),
    ):
        found_notes = await notes.list(f"notes?select=id&id=eq.9&text={quote(search)}")
        assert bool(found_notes) is is_found, search
    await notes.ask("DELETE", "/notes/9")
    for search in (" ".join(f"w{number}" for number in range(101)), "x" * 2500, "(" * 30):
        assert (await notes.ask("GET", f"/notes?text=fts.{quote(search)}")).status == 400


async def test_an_index_of_words_serves_a_search_and_finds_the_same_rows(world: Installation) -> None:
    tables = Tables(world, await world.create_app())
    await tables.apply({"notes": NOTES})
    for start in range(0, 2000, 1000):
        texts = [
            f"{'filling words ' * 40} number{n} {'Jumping Ärger' if n == 7 else ''}" for n in range(start, start + 1000)
        ]
        await tables.insert("notes", *({"id": start + n, "text": text} for n, text in enumerate(texts)))
    searches = ("wfts.jump", "wfts.number1999", "phfts.jumping ärger", "not.wfts.filling", "fts.number199:*")
    queries = [f"notes?select=id&order=id&limit=20&text={quote(search)}" for search in searches]
    rows_before = [await tables.list(query) for query in queries]
    assert [len(rows) for rows in rows_before] == [1, 1, 1, 0, 11]
    table = {**NOTES, "indexes": {"notes_words": {"columns": ["text"], "method": "fts"}}}
    answer = await tables.apply({"notes": table})
    assert answer["applied"] == 1
    assert [await tables.list(query) for query in queries] == rows_before
    plan = (await tables.ask("GET", "/data-explain/notes?text=wfts.jump")).json["plan"]
    if "Plan" in plan[0]:
        assert "notes.notes_words" in json.dumps(plan)
        # As docs/data.md says: it serves callers to whom every row is open, and no others.
        for using, is_served in (("true", True), ("id > 5", False)):
            await tables.policy("notes", "some", using_expression=using)
            answer = await tables.ask("GET", "/data-explain/notes?text=wfts.jump", x_platform_as_role="anon")
            assert ("notes.notes_words" in json.dumps(answer.json["plan"])) is is_served, using
            shown_rows = await tables.list("notes?select=id&text=wfts.jump", x_platform_as_role="anon")
            assert shown_rows == [{"id": 7}]
        await tables.ask("DELETE", "/rls/notes")
    await tables.ask("PATCH", "/notes/9", {"text": "It jumps"})
    assert await tables.list(queries[0]) == [{"id": 7}, {"id": 9}]
    assert (await tables.ask("GET", "/schema")).json["schema"]["tables"]["notes"]["indexes"] == {
        "notes_words": {"columns": ["text"], "unique": False, "method": "fts"}
    }
    assert (await tables.apply({"notes": NOTES}))["applied"] == 1
    assert [await tables.list(query) for query in queries[1:3]] == rows_before[1:3]


@pytest.mark.parametrize(
    "index",
    [
        {"columns": ["id"], "method": "fts"},
        {"columns": ["text", "id"], "method": "fts"},
        {"columns": ["text"], "method": "fts", "unique": True},
        {"columns": ["text"], "method": "fts", "opclass": "gin_trgm_ops"},
    ],
)
async def test_an_index_of_words_is_for_one_column_of_text(world: Installation, index: dict[str, Any]) -> None:
    tables = Tables(world, await world.create_app())
    schema = {"tables": {"notes": {**NOTES, "indexes": {"notes_words": index}}}}
    answer = await tables.ask("POST", "/schema/apply", {"schema": schema})
    assert (answer.status, answer.json["error"]["code"]) == (400, "VALIDATION_INVALID_SCHEMA")


async def test_a_slow_search_says_which_index_would_serve_it(world: Installation) -> None:
    tables = Tables(world, await world.create_app())
    await tables.apply({"notes": NOTES})
    options = world.application.services.options
    before = options.slow_seconds
    object.__setattr__(options, "slow_seconds", 0.0)
    try:
        await tables.list("notes?text=wfts.jump")
    finally:
        object.__setattr__(options, "slow_seconds", before)
    (slow,) = (await tables.ask("GET", "/rls")).json["slow_statements"]
    assert "No index begins with" not in slow["message"]
    is_on_files = world.application.services.database.dialect == "sqlite"
    assert ("reads every text" if is_on_files else '{"columns": ["text"], "method": "fts"}') in slow["message"]
