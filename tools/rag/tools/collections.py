"""/v1/{app_id}/rag/collections: make, list, change and delete collections."""

from typing import Any

from sqlalchemy import delete, func, insert, select, update

from baobab.storage.sql.database import Execute
from baobab.storage.vectors.extension import lacks_vectors
from baobab.tools.core import OMITTED, AppId, Audit, Call, Guard, Rest, one_of
from baobab.tools.core.guard import texts
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.listing import Listing
from baobab.tools.rag.access import MANAGERS, PUBLIC, READERS, is_visible_to, list_collections, load_collection
from baobab.tools.rag.cleaning import request_cleaning
from baobab.tools.rag.errors import (
    CollectionExists,
    CollectionNotFound,
    HoldsUsersDocuments,
    OverlapTooLarge,
    TooManyCollections,
    VectorsUnavailable,
)
from baobab.tools.rag.schemas import (
    MOST_COLLECTIONS,
    AccessMode,
    ChunkOverlap,
    ChunkSize,
    Collection,
    CollectionDetails,
    CollectionName,
    Description,
    EmbeddingModel,
)
from baobab.tools.rag.tables import FREEZES, collections, documents
from baobab.tools.rag.toolset import rag

_columns = collections.c
_WIDENS = Guard(widens={"accessMode": one_of(["shared", "public"]), "ownText": one_of([True])})
_FURTHER_NAMES = {
    "access_mode": "accessMode",
    "chunk_size": "chunkSize",
    "chunk_overlap": "chunkOverlap",
    "embedding_model": "embeddingModel",
    "own_text": "ownText",
    "document_counts": "documentCounts",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
_AUDIT = Audit("rag.collection.create", category="rag", action="create", resource="collection")


@rag.tool(
    "POST /collections",
    access=MANAGERS,
    effect="write",
    raises=(CollectionExists, OverlapTooLarge, TooManyCollections, VectorsUnavailable),
    audit=_AUDIT,
    rest=Rest(status=201, examples={"name": "handbook", "description": "How we work."}, further_names=_FURTHER_NAMES),
    guard=_WIDENS,
)
async def rag_collections_create(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    description: Description | None = None,
    accessMode: AccessMode = "private",
    chunkSize: ChunkSize = 512,
    chunkOverlap: ChunkOverlap = 64,
    embeddingModel: EmbeddingModel | None = None,
    ownText: bool = False,
) -> Collection:
    """Create a collection. Add documents to it with op:rag_ingest.

    description: what the collection is for.
    embeddingModel: by default, the built-in embeddings, which need no key.
    ownText: its documents are texts of those who run the app: a run that reads them has read no text from outside. Only
      for admins. Documents of users, and of runs that had read text from outside, still count as such.
    """
    _require_overlap(chunkSize, chunkOverlap)
    if ownText:
        texts.require_marking(call)
    row: dict[str, Any] = {
        "app_id": app_id,
        "id": call.services.ids.uuid(),
        "name": name,
        "description": description,
        "access_mode": accessMode,
        "chunk_size": chunkSize,
        "chunk_overlap": chunkOverlap,
        "embedding_model": embeddingModel,
        "own_text": ownText,
        "size_bytes": 0,
        "revision": 0,
        "created_at": call.now,
        "updated_at": call.now,
    }
    async with FREEZES.writing(call) as unit:
        if unit.database.dialect == "postgresql" and await lacks_vectors(unit.execute):
            raise VectorsUnavailable
        names = set((await unit.execute(select(_columns.name).where(_columns.app_id == app_id))).scalars())
        if name in names:
            raise CollectionExists(details={"name": name})
        if len(names) >= MOST_COLLECTIONS:
            raise TooManyCollections(details={"limit": MOST_COLLECTIONS})
        created_row = (await unit.execute(insert(collections).values(row).returning(collections))).one()
    call.audit.resource_id = created_row.id
    call.audit.data |= {"name": name, "access_mode": accessMode, "own_text": ownText}
    return _warn(_describe(created_row))


@rag.tool(
    "GET /collections",
    access=READERS,
    effect="read",
    listing=Listing("collections", is_bare=True),
    rest=Rest(further_names=_FURTHER_NAMES),
)
async def rag_collections_list(call: Call, app_id: AppId) -> list[Collection]:
    """List the collections of an app that you may see, by name."""
    del app_id
    return [_describe(row) for row in await list_collections(call)]


@rag.tool(
    "GET /collections/{name}",
    access=READERS,
    effect="read",
    raises=(CollectionNotFound,),
    rest=Rest(further_names=_FURTHER_NAMES),
)
async def rag_collections_get(call: Call, app_id: AppId, name: CollectionName) -> CollectionDetails:
    """Read a collection, and how many documents and chunks of it you may see."""
    del app_id
    async with call.reading() as execute:
        row = await load_collection(execute, call, name)
        of_it = (
            documents.c.app_id == row.app_id,
            documents.c.collection_id == row.id,
            *is_visible_to(call.caller, row),
        )
        counting = select(documents.c.status, func.count(), func.coalesce(func.sum(documents.c.chunk_count), 0))
        counts_by_status = (await execute(counting.where(*of_it).group_by(documents.c.status))).all()
    counts = {status: count for status, count, _ in counts_by_status}
    total = sum(counts.values())
    return {
        **_describe(row),
        "documentCount": total,
        "chunkCount": int(sum(in_chunks for _, _, in_chunks in counts_by_status)),
        "documentCounts": {
            "total": total,
            "pending": counts.get("pending", 0),
            "processing": counts.get("processing", 0),
            "ready": counts.get("ready", 0),
            "failed": counts.get("failed", 0),
        },
    }


@rag.tool(
    "PATCH /collections/{name}",
    access=MANAGERS,
    effect="write",
    raises=(CollectionNotFound, HoldsUsersDocuments),
    audit=Audit("rag.collection.update", category="rag", action="update", resource="collection"),
    rest=Rest(examples={"description": "How we work, since 2026."}, further_names=_FURTHER_NAMES),
    guard=_WIDENS,
)
async def rag_collections_update(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    description: Description | None = OMITTED,
    accessMode: AccessMode | None = None,
    ownText: bool | None = None,
) -> Collection:
    """Change a collection's description, or what users of the app may do with it.

    description: null removes it.
    accessMode: what users of the app may do; null keeps it.
    ownText: whether its documents are texts of those who run the app, as in op:rag_collections_create; null keeps it.
    """
    values: dict[str, Any] = {"updated_at": call.now}
    if description is not OMITTED:
        values["description"] = description
    if accessMode is not None:
        values["access_mode"] = accessMode
    if ownText:
        texts.require_marking(call)
    if ownText is not None:
        values["own_text"] = ownText
    async with FREEZES.writing(call) as unit:
        row = await load_collection(unit.execute, call, name)
        if accessMode == PUBLIC:
            await _require_no_documents_of_users(unit.execute, row)
        conditions = (_columns.app_id == app_id, _columns.id == row.id)
        changed_row = (
            await unit.execute(update(collections).where(*conditions).values(values).returning(collections))
        ).one()
    call.audit.resource_id = row.id
    call.audit.data |= {"name": name, "access_mode": changed_row.access_mode, "own_text": bool(changed_row.own_text)}
    return _warn(_describe(changed_row))


async def _preview_deletion(call: Call, app_id: str, name: str) -> str:
    del app_id
    async with call.reading() as execute:
        row = await load_collection(execute, call, name)
        of_it = (documents.c.app_id == row.app_id, documents.c.collection_id == row.id)
        count = (await execute(select(func.count()).where(*of_it))).scalar_one()
    return f"Deletes the collection {escape_name(name)} with its {count} documents for ever."


@rag.tool(
    "DELETE /collections/{name}",
    access=MANAGERS,
    effect="destructive",
    raises=(CollectionNotFound,),
    audit=Audit("rag.collection.delete", category="rag", action="delete", resource="collection"),
    rest=Rest(status=204),
    guard=Guard(preview=_preview_deletion),
)
async def rag_collections_delete(call: Call, app_id: AppId, name: CollectionName) -> None:
    """Delete a collection for ever, with all its documents, chunks and vectors."""
    async with FREEZES.writing(call) as unit:
        row = await load_collection(unit.execute, call, name)
        of_it = (documents.c.app_id == app_id, documents.c.collection_id == row.id)
        await unit.execute(delete(documents).where(*of_it))
        await unit.execute(delete(collections).where(_columns.app_id == app_id, _columns.id == row.id))
        await request_cleaning(call, unit, row.id)
    call.audit.resource_id = row.id
    call.audit.data |= {"name": name}


async def _require_no_documents_of_users(execute: Execute, row: Any) -> None:
    of_users = (documents.c.app_id == row.app_id, documents.c.collection_id == row.id, documents.c.user_id.is_not(None))
    count = (await execute(select(func.count()).where(*of_users))).scalar_one()
    if count:
        raise HoldsUsersDocuments(details={"documents": count})


def _require_overlap(size: int, overlap: int) -> None:
    if overlap >= size:
        raise OverlapTooLarge(details={"chunkSize": size, "chunkOverlap": overlap})


def _warn(collection: Collection) -> Collection:
    """Adds the warning that a public collection is one, to the answer of whoever makes it so."""
    if collection["accessMode"] != PUBLIC:
        return collection
    name = collection["name"]
    return {**collection, "warnings": [f"Anyone may read every document of `{name}` without signing in."]}


def _describe(row: Any) -> Collection:
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "accessMode": row.access_mode,
        "chunkSize": row.chunk_size,
        "chunkOverlap": row.chunk_overlap,
        "embeddingModel": row.embedding_model,
        "ownText": bool(row.own_text),
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }
