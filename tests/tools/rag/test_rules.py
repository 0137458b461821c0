"""Who sees what in a collection, and what an app may keep."""

import asyncio

import pytest
from sqlalchemy import update

from baobab.storage.sql.tables import metadata
from tests.jobs import run_job
from tests.tools.rag.conftest import ANN, BEN, FACTS, RagApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("mode", "seen_by_ann", "ann_deletes_her_own", "ann_deletes_bens"),
    [("private", {"ann"}, 204, 404), ("shared", {"app", "ann", "ben"}, 403, 403), ("custom", set(), 404, 404)],
)
async def test_users_see_and_delete_what_the_access_mode_says(
    app: RagApp, mode: str, seen_by_ann: set[str], ann_deletes_her_own: int, ann_deletes_bens: int
) -> None:
    await app.create(accessMode="shared")
    ids = {
        "app": await app.ingest(FACTS["trees"]),
        "ann": await app.ingest(FACTS["ships"], ANN),
        "ben": await app.ingest(FACTS["bread"], BEN),
    }
    response = await app.request("PATCH", "/facts", json={"accessMode": mode})
    assert response.json()["accessMode"] == mode
    names = {document_id: name for name, document_id in ids.items()}
    if mode == "custom":
        for method, path in (("GET", "/facts"), ("GET", "/facts/documents"), ("POST", "/facts/query")):
            assert (await app.request(method, path, ANN, json={"query": "water"})).status_code == 404
        assert (await app.request("GET", "", ANN)).json() == []
    else:
        body = (await app.request("GET", "/facts/documents", ANN)).json()
        assert {names[document["id"]] for document in body} == seen_by_ann
        for how in ("vector", "text", "hybrid"):
            query = "water trunks ship cargo bread yeast"
            assert {names[document_id] for document_id in await app.find(query, ANN, topK=10, mode=how)} == seen_by_ann
        details = (await app.request("GET", "/facts", ANN)).json()
        assert details["documentCount"] == len(seen_by_ann)
        text = await app.request("GET", f"/facts/documents/{ids['ben']}/text", ANN)
        assert text.status_code == (200 if "ben" in seen_by_ann else 404)
    deleted_response = await app.request("DELETE", f"/facts/documents/{ids['ann']}", ANN)
    assert deleted_response.status_code == ann_deletes_her_own, deleted_response.text
    refusal = await app.request("DELETE", f"/facts/documents/{ids['ben']}", ANN)
    assert refusal.status_code == ann_deletes_bens
    assert len((await app.request("GET", "/facts/documents")).json()) == (2 if ann_deletes_her_own == 204 else 3)


async def test_users_make_change_and_delete_no_collections(app: RagApp) -> None:
    await app.create(accessMode="shared")
    for method, path, body in (
        ("POST", "", {"name": "mine"}),
        ("PATCH", "/facts", {"accessMode": "private"}),
        ("DELETE", "/facts", None),
        ("POST", "/facts/reindex", {}),
    ):
        refusal = await app.request(method, path, ANN, json=body)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_FORBIDDEN"), path


async def test_nobody_without_a_credential_is_let_in(app: RagApp) -> None:
    await app.create()
    refusal = await app.baobab.client.post(f"/v1/{app.id}/rag/collections/facts/query", json={"query": "x"})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (401, "AUTH_REQUIRED")


async def test_the_same_content_is_kept_once_for_each_user(app: RagApp) -> None:
    await app.create()
    anns, bens = await app.ingest(FACTS["trees"], ANN), await app.ingest(FACTS["trees"], BEN)
    assert anns != bens
    assert await app.ingest(FACTS["trees"], ANN) == anns


async def test_two_that_add_the_same_at_once_get_one_document(app: RagApp) -> None:
    await app.create()
    answers = await asyncio.gather(
        *(app.request("POST", "/facts/ingest", json={"text": FACTS["trees"]}) for _ in range(5))
    )
    assert len({answer.json()["documentId"] for answer in answers}) == 1


async def test_an_app_has_two_hundred_collections_at_most(app: RagApp) -> None:
    collection = await app.create("first")
    table = metadata.tables["rag_collections"]
    database = app.baobab.application.services.regions["local"].database
    row = {"app_id": app.id, "access_mode": "private", "chunk_size": 512, "chunk_overlap": 64, "size_bytes": 0}
    row |= {"revision": 0, "created_at": app.clock.now(), "updated_at": app.clock.now()}
    rows = [{**row, "id": f"{number:08}-0000-4000-8000-000000000000", "name": f"c{number}"} for number in range(199)]
    async with database.writing(bulk=True) as connection:
        await connection.execute(table.insert(), rows)
    refusal = await app.request("POST", "", json={"name": "more"})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (402, "RAG_COLLECTIONS_LIMIT")
    assert (await app.request("DELETE", f"/{collection['name']}")).status_code == 204
    await app.create("more")


async def test_texts_count_against_what_the_plan_gives_and_are_free_when_they_are_gone(app: RagApp) -> None:
    await app.create()
    table = metadata.tables["rag_collections"]
    database = app.baobab.application.services.regions["local"].database
    first = await app.ingest("x" * 1000)
    async with database.reading() as connection:
        size = await connection.scalar(
            table.select().with_only_columns(table.c.size_bytes).where(table.c.app_id == app.id)
        )
    assert size == 1000
    await app.request("PUT", f"/facts/documents/{first}", json={"text": "y" * 400})
    await app.request("DELETE", f"/facts/documents/{first}")
    async with database.reading() as connection:
        size = await connection.scalar(
            table.select().with_only_columns(table.c.size_bytes).where(table.c.app_id == app.id)
        )
    assert size == 0


@pytest.mark.parametrize("chunks", [0, 1], ids=["not begun", "with all vectors"])
async def test_a_document_whose_job_is_gone_is_taken_up_again(app: RagApp, chunks: int) -> None:
    await app.create()
    answer = await app.request("POST", "/facts/ingest", json={"text": FACTS["trees"]})
    document_id = answer.json()["documentId"]
    table = metadata.tables["rag_documents"]
    database = app.baobab.application.services.regions["local"].database
    # Its own job may have begun by now, or even be done.
    not_ready = {"status": "pending", "version": None, "next_version": 1}
    async with database.writing(lock=app.id) as connection:
        await connection.execute(
            update(table)
            .where(table.c.id == document_id)
            .values(ingest_id="of a job that is gone", chunks_done=chunks, chunks_total=chunks, **not_ready)
        )
    await app.run_jobs()
    assert (await app.get(document_id))["status"] == "pending"
    app.clock.advance(61)
    await run_job(app.baobab.application, "rag_sweep")
    await app.run_jobs()
    assert (await app.get(document_id))["status"] == "ready"


async def test_all_documents_are_made_anew_while_searches_go_on(app: RagApp) -> None:
    await app.create(chunkSize=4000)
    document_id = await app.ingest(" ".join(f"{fact}" for fact in FACTS.values()) + " And so on." * 20)
    assert (await app.get(document_id))["chunkCount"] == 1
    response = await app.request("POST", "/facts/reindex", json={"chunkSize": 120, "chunkOverlap": 0})
    assert response.status_code == 202, response.text
    assert await app.find("yeast") == [document_id]
    await app.run_jobs()
    document = await app.get(document_id)
    assert (document["status"], document["chunkCount"] > 3) == ("ready", True)
    assert "yeast" in (await app.query("yeast in bread", topK=1))[0]["text"]


async def test_retrieval_is_measured_with_questions_of_ones_own(app: RagApp) -> None:
    ids = await app.ingest_facts()
    cases = [
        {"query": "wild yeast in bread", "relevant": [ids["bread"]]},
        {"query": "cranes and cargo", "relevant": [ids["ships"], ANN]},
    ]
    answer = await app.request("POST", "/facts/evaluate", json={"cases": cases, "topK": 3, "synthesize": True})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [case["recall"] for case in body["cases"]] == [1.0, 0.5]
    assert body["recall"] == 0.75
    assert [case["reciprocalRank"] for case in body["cases"]] == [1.0, 1.0]
    assert 0 <= body["faithfulness"] <= 1


async def test_an_answer_is_streamed_with_its_chunks_first_and_its_sources_last(app: RagApp) -> None:
    await app.ingest_facts()
    body = {"query": "How long do baobabs live?", "synthesize": True, "stream": True, "topK": 2}
    answer = await app.request("POST", "/facts/query", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    events = [event.split("\n")[0].removeprefix("event: ") for event in answer.text.strip().split("\n\n")]
    assert (events[0], events[-1]) == ("chunks", "done")
    assert "delta" in events


async def test_different_chunks_are_preferred_where_they_are_asked_for(app: RagApp) -> None:
    await app.create()
    for number in range(3):
        await app.ingest(f"Baobabs store water in their trunks, tree {number}.")
    other = await app.ingest("Camels store fat in their humps and need little water.")
    assert other not in await app.find("Baobabs store water in their trunks", topK=2, mode="vector")
    assert other in await app.find("Baobabs store water in their trunks", topK=2, mode="vector", diversity=0.9)
