"""Nothing stays of what is gone: rows of versions that were given up, rows in a new region, files of vectors."""

from typing import Any

import pytest
from sqlalchemy import func, insert, select

from baobab.storage.sql.tables import metadata
from baobab.storage.vectors.folders import list_folders
from tests.jobs import run_job
from tests.tools.rag.conftest import ANN, FACTS, RagApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def count_rows(app: RagApp, name: str, **values: object) -> int:
    table = metadata.tables[f"rag_{name}"]
    which = [table.c[column] == value for column, value in values.items()]
    async with app.baobab.application.services.regions["local"].database.reading() as connection:
        return int(await connection.scalar(select(func.count()).where(table.c.app_id == app.id, *which)) or 0)


async def test_a_version_that_was_replaced_before_it_was_ready_leaves_no_rows(app: RagApp) -> None:
    await app.create()
    response = await app.request("POST", "/facts/ingest", json={"text": FACTS["trees"]})
    path = f"/facts/documents/{response.json()['documentId']}"
    assert (await app.request("PUT", path, json={"text": FACTS["bread"]})).status_code == 202
    await app.run_jobs()
    assert (await app.get(response.json()["documentId"]))["status"] == "ready"
    for name in ("texts", "chunks", "vectors"):
        assert await count_rows(app, name, version=2) == 1
        assert await count_rows(app, name) == 1


async def test_the_files_of_deleted_collections_are_deleted(app: RagApp) -> None:
    await app.ingest_facts()
    await app.create("kept")
    await app.ingest(FACTS["trees"], to="kept")
    for name in ("facts", "kept"):
        assert await app.query("water", of=name, mode="vector")
    root = app.baobab.application.services.options.data / "vectors"
    before = [folder for folder in list_folders(root) if folder.app_id == app.id]
    await app.request("DELETE", "/facts")
    await run_job(app.baobab.application, "rag_leftovers")
    after = [folder for folder in list_folders(root) if folder.app_id == app.id]
    if app.baobab.application.services.database.dialect == "sqlite":
        assert (len(before), len(after)) == (2, 1)
    else:
        assert before == after == []
    assert await app.query("water", of="kept", mode="vector")


async def test_searches_in_a_part_of_a_collection_leave_the_vectors_of_the_others_where_they_are(
    app: RagApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baobab.storage.vectors.vector_file._FEWEST_DEAD", 0)
    ids = await app.ingest_facts()
    of_trees: dict[str, Any] = {"filter": {"topic": "trees"}, "mode": "vector"}
    root = app.baobab.application.services.options.data / "vectors"

    def list_files() -> list[str]:
        return sorted(
            file.name for folder in list_folders(root) if folder.app_id == app.id for file in folder.path.iterdir()
        )

    everything = set(await app.find("water", mode="vector"))
    before = list_files()
    assert set(await app.find("water", **of_trees)) == {ids["trees"]}
    assert await app.find("water", ANN, mode="vector") == []
    assert set(await app.find("water", mode="vector")) == everything == set(ids.values())
    assert list_files() == before
    # What is deleted is not found again, and neither is what was found before without it.
    await app.request("DELETE", f"/facts/documents/{ids['trees']}")
    assert set(await app.find("water", mode="vector")) == everything - {ids["trees"]}
    assert await app.find("water", **of_trees) == []


async def test_what_is_to_be_deleted_of_an_app_is_deleted_where_the_app_is(app: RagApp) -> None:
    collection = await app.create()
    services = app.baobab.application.services
    row = {"app_id": app.id, "document_id": ANN, "version": 1, "part": 0, "collection_id": collection["id"]}
    async with services.regions["local"].database.writing() as connection:
        await connection.execute(insert(metadata.tables["rag_texts"]).values({**row, "text": "", "blocks": []}))
    unit = services.database.build_unit(write=True)
    arguments = {"app_id": app.id, "collection_id": collection["id"], "document_id": ANN}
    await services.jobs.enqueue(unit, "rag_clean", arguments)
    await unit.commit()
    await app.run_jobs()
    assert await count_rows(app, "texts") == 0


@pytest.mark.parametrize("path", ["query", "evaluate"])
async def test_a_key_that_only_reads_finds_chunks_and_pays_for_no_answer(app: RagApp, path: str) -> None:
    ids = await app.ingest_facts()
    response = await app.baobab.client.post(
        "/api-keys", json={"name": "reader", "read_only": True}, headers=app.baobab.owner
    )
    reader = {"authorization": f"Bearer {response.json()['key']}"}
    body = {"query": "water"} if path == "query" else {"cases": [{"query": "water", "relevant": [ids["trees"]]}]}
    address = f"/v1/{app.id}/rag/collections/facts/{path}"
    found_response = await app.baobab.client.post(address, json=body, headers=reader)
    assert found_response.status_code == 200, found_response.text
    refusal = await app.baobab.client.post(address, json={**body, "synthesize": True}, headers=reader)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_KEY_LIMITED")
    assert refusal.json()["error"]["details"] == {"tool": f"rag_{path}", "argument": "synthesize"}
