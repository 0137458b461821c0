"""The callers that may call the tools of retrieval, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.jobs import run_due_jobs
from tests.tools.access import RUNNERS, Caller, World

USERS = "401 403 403 ok  403 ok  403 403 ok  ok  ok  ok  403 403"
"""Those who run the app, and its users: what they may see is decided by the collection."""

ALL = "ok  403 403 ok  403 ok  403 403 ok  ok  ok  ok  403 403"
"""Visitors, too, who are shown public collections only."""

POLICY = {
    "rag_collections_create": RUNNERS,
    "rag_collections_list": ALL,
    "rag_collections_get": USERS,
    "rag_collections_update": RUNNERS,
    "rag_collections_delete": RUNNERS,
    "rag_ingest": USERS,
    "rag_documents_list": USERS,
    "rag_documents_get": USERS,
    "rag_documents_replace": USERS,
    "rag_documents_delete": USERS,
    "rag_read": USERS,
    "rag_query": USERS,
    "rag_evaluate": USERS,
    "rag_reindex": RUNNERS,
}


async def for_rag_collections_create(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": world.new_name("made")}


async def _make_collection(world: World, caller: Caller) -> dict[str, Any]:
    name = world.new_name("collection")
    await world.request("POST", f"/v1/{world.app}/rag/collections", world.callers["owner"].headers, name=name)
    return {"app_id": world.app, "name": name, "text": "Baobabs store water.", "query": "water"}


for_rag_collections_get = for_rag_collections_update = for_rag_collections_delete = _make_collection
for_rag_ingest = for_rag_documents_list = for_rag_query = for_rag_reindex = _make_collection


async def for_rag_evaluate(world: World, caller: Caller) -> dict[str, Any]:
    collection = await _make_collection(world, caller)
    return {**collection, "cases": [{"query": "water", "relevant": ["11111111-1111-4111-8111-111111111111"]}]}


async def _make_document(world: World, caller: Caller) -> dict[str, Any]:
    """A user's document, which that user may see and those who run the app."""
    collection = await _make_collection(world, caller)
    by = world.callers["user"].headers
    path = f"/v1/{world.app}/rag/collections/{collection['name']}/ingest"
    document = await world.request("POST", path, by, text="Baobabs store water.")
    await run_due_jobs(world.baobab.application)
    return {**collection, "document_id": document["documentId"]}


for_rag_documents_get = for_rag_documents_replace = for_rag_documents_delete = for_rag_read = _make_document
