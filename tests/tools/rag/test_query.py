"""Queries: found by meaning and by words, filtered, bounded, answered."""

import asyncio

import pytest

from baobab.tools.rag import text_search
from tests.tools.rag.conftest import FACTS, RagApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
async def test_the_chunk_that_answers_comes_first(app: RagApp, mode: str) -> None:
    ids = await app.ingest_facts()
    assert (await app.find("wild yeast in bread", mode=mode))[0] == ids["bread"]
    assert (await app.find("cranes unload cargo from a ship", mode=mode))[0] == ids["ships"]


async def test_a_chunk_tells_where_it_stands(app: RagApp) -> None:
    await app.create(chunkSize=120, chunkOverlap=0)
    text = (
        "# Trees\n\nOaks are tall, and many live in parks.\n\n"
        "## Baobabs\n\nBaobabs store water in their trunks. They live for a thousand years."
    )
    document_id = await app.ingest(text, filename="trees.md", metadata={"lang": "en"})
    chunk = (await app.query("baobabs store water", topK=1))[0]
    assert text[chunk["start"] : chunk["end"]] == chunk["text"]
    assert (chunk["documentId"], chunk["metadata"], chunk["filename"]) == (document_id, {"lang": "en"}, "trees.md")
    assert chunk["headings"] == ["Trees", "Baobabs"]
    assert 0.3 < chunk["score"] <= 1


async def test_top_k_and_threshold_bound_what_is_answered(app: RagApp) -> None:
    ids = await app.ingest_facts()
    assert len(await app.find("water", topK=2, mode="vector")) == 2
    result = await app.query("Baobabs store water in their trunks.", threshold=0.5)
    assert [chunk["documentId"] for chunk in result] == [ids["trees"]]
    assert await app.query("water", threshold=1) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": ""},
        {"query": "x" * 10_001},
        {"query": "x", "topK": 0},
        {"query": "x", "topK": 51},
        {"query": "x", "threshold": 1.1},
        {"query": "x", "threshold": -0.1},
        {"query": "x", "filter": []},
        {"query": "x", "filter": {"$gt": 1}},
        {"query": "x", "filter": {"a": {"$like": "b"}}},
        {"query": "x", "filter": {"a": {"$gt": [1]}}},
        {"query": "x", "filter": {"a": {"$in": "b"}}},
        {"query": "x", "filter": {"$or": {}}},
        {"query": "x", "filter": {"a": {"$exists": 1}}},
    ],
)
async def test_a_query_that_is_not_valid_is_refused(app: RagApp, body: dict[str, object]) -> None:
    await app.create()
    refusal = await app.request("POST", "/facts/query", json=body)
    assert (refusal.status_code, refusal.json()["error"]["code"][:10]) == (400, "VALIDATION"), refusal.text


async def test_only_documents_that_match_the_filter_are_found(app: RagApp) -> None:
    ids = await app.ingest_facts()
    assert set(await app.find("water", filter={"topic": "ships"}, topK=10)) == {ids["ships"]}
    assert set(await app.find("water", filter={"topic": {"$in": ["ships", "bread"]}}, topK=10)) == {
        ids["ships"],
        ids["bread"],
    }
    assert await app.find("water", filter={"topic": "planes"}) == []
    assert len(set(await app.find("water", filter={"topic": {"$exists": True}}, topK=10))) == 3


async def test_a_filter_that_was_used_before_sees_what_has_changed_since(app: RagApp) -> None:
    ids = await app.ingest_facts()

    async def find() -> set[str]:
        return set(await app.find("water", filter={"topic": "ships"}, topK=10))

    assert await find() == await find() == {ids["ships"]}
    document_id = await app.ingest("Tugs pull ships into harbours.", metadata={"topic": "ships"})
    assert await find() == {ids["ships"], document_id}
    body = {"text": FACTS["trees"], "metadata": {"topic": "ships"}}
    assert (await app.request("PUT", f"/facts/documents/{ids['trees']}", json=body)).status_code == 202
    await app.run_jobs()
    assert await find() == {ids["ships"], document_id, ids["trees"]}
    await app.request("DELETE", f"/facts/documents/{ids['ships']}")
    assert await find() == {document_id, ids["trees"]}
    assert set(await app.find("water", filter={"topic": {"$ne": "ships"}}, topK=10)) == {ids["bread"]}


async def test_of_many_words_the_rarer_choose_and_everyday_ones_fill_up(
    app: RagApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await app.ingest_facts()
    everyday = [await app.ingest(f"Water is in the river {number}.") for number in range(3)]
    question = "water trunks"
    plain = await app.find(question, mode="text", topK=10)
    assert plain[0] == ids["trees"]
    assert set(plain) == {ids["trees"], *everyday}
    # As if thousands of chunks had the word.
    monkeypatch.setattr(text_search, "_MOST_RANKED", 1)
    assert await app.find(question, mode="text", topK=10) == plain
    assert await app.find(question, mode="text", topK=1) == plain[:1]
    assert set(await app.find("water", mode="text", topK=10)) == set(plain)
    assert set(await app.find(question, mode="text", topK=10, filter={"topic": {"$exists": False}})) == set(everyday)


async def test_an_empty_collection_answers_nothing(app: RagApp) -> None:
    await app.create()
    assert await app.query("anything") == []


async def test_an_answer_is_written_and_names_its_model(app: RagApp) -> None:
    await app.ingest_facts()
    body = {"query": "How long do baobabs live?", "synthesize": True, "topK": 2}
    answer = await app.request("POST", "/facts/query", json=body)
    assert answer.status_code == 200, answer.text
    found_body = answer.json()
    assert found_body["answer"]
    assert found_body["model"].startswith("baobab/")
    assert len(found_body["chunks"]) == 2
    assert all(set(sentence["sources"]) <= {0, 1} for sentence in found_body["sentences"])


async def test_a_search_finds_a_document_while_it_is_replaced(app: RagApp) -> None:
    await app.create()
    document_id = await app.ingest("Oaks have rings, 0 of them.")

    async def replace() -> None:
        for number in range(1, 9):
            body = {"text": f"Oaks have rings, {number} of them."}
            response = await app.request("PUT", f"/facts/documents/{document_id}", json=body)
            assert response.status_code == 202, response.text
            await app.run_jobs()

    replacing = asyncio.create_task(replace())
    while not replacing.done():
        assert await app.find("How many rings have oaks?") == [document_id]
    await replacing
    [chunk] = await app.query("rings")
    assert chunk["text"] == "Oaks have rings, 8 of them."
