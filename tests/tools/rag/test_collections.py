"""Collections and their documents: made, listed, read, replaced, deleted."""

from base64 import b64encode

import pytest
from sqlalchemy import func, select

from baobab.storage.sql.tables import metadata
from tests.runtime.documents.samples import build_pdf
from tests.tools.rag.conftest import ANN, FACTS, RagApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_collection_is_made_with_the_defaults_of_the_contract(app: RagApp) -> None:
    collection = await app.create("facts-1_a", description="What we know.")
    assert {name: collection[name] for name in ("name", "description", "accessMode", "chunkSize", "chunkOverlap")} == {
        "name": "facts-1_a",
        "description": "What we know.",
        "accessMode": "private",
        "chunkSize": 512,
        "chunkOverlap": 64,
    }
    assert (await app.request("GET", "")).json() == [collection]
    details = (await app.request("GET", "/facts-1_a")).json()
    assert (details["id"], details["documentCount"], details["chunkCount"]) == (collection["id"], 0, 0)


@pytest.mark.parametrize(
    "body",
    [
        {"name": "Facts"},
        {"name": "a b"},
        {"name": "x" * 101},
        {"name": "x", "chunkSize": 99},
        {"name": "x", "chunkSize": 4001},
        {"name": "x", "chunkOverlap": 501},
        {"name": "x", "chunkSize": 100, "chunkOverlap": 100},
        {"name": "x", "accessMode": "open"},
        {"name": "x", "description": "d" * 501},
        {},
    ],
)
async def test_a_collection_that_is_not_valid_is_refused(app: RagApp, body: dict[str, object]) -> None:
    refusal = await app.request("POST", "", json=body)
    assert (refusal.status_code, refusal.json()["error"]["code"][:10]) == (400, "VALIDATION"), refusal.text


async def test_a_name_is_given_once(app: RagApp) -> None:
    await app.create()
    refusal = await app.request("POST", "", json={"name": "facts"})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "RESOURCE_CONFLICT")


async def test_a_document_goes_from_pending_to_ready(app: RagApp) -> None:
    await app.create()
    body = {"text": FACTS["trees"], "filename": "trees.txt", "metadata": {"topic": "trees"}}
    answer = await app.request("POST", "/facts/ingest", json=body)
    assert answer.status_code == 202
    assert answer.json()["status"] == "pending"
    document_id = answer.json()["documentId"]
    await app.run_jobs()
    document = await app.get(document_id)
    assert (document["status"], document["chunkCount"], document["errorMessage"]) == ("ready", 1, None)
    assert (document["filename"], document["metadata"]) == ("trees.txt", {"topic": "trees"})
    assert document["progress"] == {"chunksDone": 1, "chunksTotal": 1}
    assert (await app.request("GET", "/facts/documents")).json() == [document]
    details = (await app.request("GET", "/facts")).json()
    assert (details["documentCount"], details["chunkCount"], details["documentCounts"]["ready"]) == (1, 1, 1)


async def test_a_file_that_was_uploaded_is_read(app: RagApp) -> None:
    await app.create()
    path = f"/storage/{app.id}/objects"
    file = {"filename": "trees.md", "contentType": "text/markdown", "content": f"# Trees\n\n{FACTS['trees']}"}
    body = (await app.baobab.client.post(path, json=file, headers=app.baobab.owner)).json()
    document_id = await app.ingest(storage_object_id=body["id"])
    assert (await app.get(document_id))["filename"] == "trees.md"
    [chunk] = await app.query("water")
    assert (chunk["documentId"], chunk["headings"], chunk["filename"]) == (document_id, ["Trees"], "trees.md")


async def test_a_chunk_of_a_short_page_is_cited_with_that_page(app: RagApp) -> None:
    await app.create()
    content = b64encode(build_pdf([(12, "Penguins swim in cold water")], [(12, "Llamas carry wool")])).decode()
    file = {"filename": "a.pdf", "contentType": "application/pdf", "content": content, "encoding": "base64"}
    body = (await app.baobab.client.post(f"/storage/{app.id}/objects", json=file, headers=app.baobab.owner)).json()
    await app.ingest(storage_object_id=body["id"])
    pages = {chunk["text"]: chunk["page"] for chunk in await app.query("animals")}
    assert pages == {"Penguins swim in cold water": 1, "Llamas carry wool": 2}


@pytest.mark.parametrize("kind", ["image/svg+xml", "Application/ZIP"])
async def test_a_file_of_a_type_without_text_is_refused_at_once(app: RagApp, kind: str) -> None:
    await app.create()
    file = {"filename": "a.bin", "contentType": kind, "content": "not a text"}
    path = f"/storage/{app.id}/objects"
    body = (await app.baobab.client.post(path, json=file, headers=app.baobab.owner)).json()
    refusal = await app.request("POST", "/facts/ingest", json={"storage_object_id": body["id"]})
    assert refusal.status_code == 400
    assert refusal.json()["error"]["code"] == "VALIDATION_INVALID_TYPE"
    assert "application/pdf" in refusal.json()["error"]["details"]["supported"]


async def test_a_file_that_is_deleted_before_it_is_read_fails_in_words(app: RagApp) -> None:
    await app.create()
    file = {"filename": "a.txt", "contentType": "text/plain", "content": "a"}
    body = (await app.baobab.client.post(f"/storage/{app.id}/objects", json=file, headers=app.baobab.owner)).json()
    answer = await app.request("POST", "/facts/ingest", json={"storage_object_id": body["id"]})
    await app.baobab.client.delete(f"/storage/{app.id}/{body['id']}", headers=app.baobab.owner)
    await app.run_jobs()
    document = await app.get(answer.json()["documentId"])
    assert (document["status"], document["errorMessage"]) == ("failed", "The file was deleted before it was read.")


@pytest.mark.parametrize(
    "body", [{}, {"text": "a", "storage_object_id": ANN}, {"text": ""}, {"text": 1}, {"text": None}]
)
async def test_a_document_has_exactly_one_source(app: RagApp, body: dict[str, object]) -> None:
    await app.create()
    refusal = await app.request("POST", "/facts/ingest", json=body)
    assert (refusal.status_code, refusal.json()["error"]["code"][:10]) == (400, "VALIDATION"), refusal.text


async def test_what_is_not_there_is_not_found(app: RagApp) -> None:
    await app.create()
    for method, path in (
        ("GET", "/other"),
        ("DELETE", "/other"),
        ("GET", "/other/documents"),
        ("GET", f"/facts/documents/{ANN}"),
        ("DELETE", f"/facts/documents/{ANN}"),
        ("GET", f"/facts/documents/{ANN}/text"),
    ):
        refusal = await app.request(method, path)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (404, "RESOURCE_NOT_FOUND"), path
    missing = await app.request("POST", "/facts/ingest", json={"storage_object_id": ANN})
    assert missing.status_code == 404


async def test_a_text_without_words_fails_in_words(app: RagApp) -> None:
    await app.create()
    document = await app.get(await app.ingest("  \n \n"))
    assert (document["status"], document["errorMessage"]) == ("failed", "The document has no text.")


async def test_the_same_content_is_kept_once(app: RagApp) -> None:
    await app.create()
    first = await app.ingest(FACTS["trees"], metadata={"a": 1})
    again = await app.request("POST", "/facts/ingest", json={"text": FACTS["trees"], "metadata": {"a": 1}})
    assert (again.json()["documentId"], again.json()["status"]) == (first, "ready")
    assert await app.ingest(FACTS["trees"], metadata={"a": 2}) != first


async def test_a_document_is_replaced_at_once_and_the_old_one_is_found_until_then(app: RagApp) -> None:
    ids = await app.ingest_facts()
    path = f"/facts/documents/{ids['trees']}"
    response = await app.request("PUT", path, json={"text": "Cactuses keep water in their stems."})
    assert response.status_code == 202, response.text
    document = await app.get(ids["trees"])
    assert document["metadata"] == {"topic": "trees"}
    await app.run_jobs()
    texts = [chunk["text"] for chunk in await app.query("Where is water kept?", topK=10)]
    assert "Cactuses keep water in their stems." in texts
    assert not any("Baobabs" in text for text in texts)


async def test_a_version_that_fails_leaves_the_one_before(app: RagApp) -> None:
    ids = await app.ingest_facts()
    await app.request("PUT", f"/facts/documents/{ids['trees']}", json={"text": " "})
    await app.run_jobs()
    assert (await app.get(ids["trees"]))["status"] == "failed"
    assert ids["trees"] in await app.find("baobab water")


async def test_a_deleted_document_is_found_no_more(app: RagApp) -> None:
    ids = await app.ingest_facts()
    response = await app.request("DELETE", f"/facts/documents/{ids['trees']}")
    assert (response.status_code, response.content) == (204, b"")
    assert ids["trees"] not in await app.find("baobab water", topK=10)
    assert (await app.request("GET", f"/facts/documents/{ids['trees']}")).status_code == 404


async def test_a_deleted_collection_leaves_no_rows(app: RagApp) -> None:
    await app.ingest_facts()
    assert (await app.request("DELETE", "/facts")).status_code == 204
    await app.run_jobs()
    services = app.baobab.application.services
    async with services.regions["local"].database.reading() as connection:
        for name in ("collections", "documents", "texts", "chunks", "vectors"):
            table = metadata.tables[f"rag_{name}"]
            assert await connection.scalar(select(func.count()).where(table.c.app_id == app.id)) == 0, name


async def test_a_document_is_read_in_parts(app: RagApp) -> None:
    await app.create(chunkSize=4000)
    text = "".join(f"Line {number} of a long text.\n" for number in range(2600))
    document_id = await app.ingest(text)
    path, read_text, offset = f"/facts/documents/{document_id}/text", "", 0
    while offset is not None:
        part = (await app.request("GET", f"{path}?offset={offset}&limit=20000")).json()
        read_text, offset = read_text + part["text"], part["nextOffset"]
    assert read_text == text
    beyond = (await app.request("GET", f"{path}?offset=1000000")).json()
    assert (beyond["text"], beyond["nextOffset"]) == ("", None)
