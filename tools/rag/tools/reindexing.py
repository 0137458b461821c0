"""/v1/{app_id}/rag/collections/{name}/reindex: split and embed all documents anew."""

from typing import Any

from sqlalchemy import update

from baobab.tools.core import AppId, Audit, Call, Guard, Rest
from baobab.tools.rag.access import MANAGERS, load_collection
from baobab.tools.rag.errors import CollectionNotFound, OverlapTooLarge
from baobab.tools.rag.schemas import ChunkOverlap, ChunkSize, CollectionName, EmbeddingModel, Reindexing
from baobab.tools.rag.tables import FREEZES, collections
from baobab.tools.rag.toolset import rag


@rag.tool(
    "POST /collections/{name}/reindex",
    access=MANAGERS,
    effect="write",
    raises=(CollectionNotFound, OverlapTooLarge),
    audit=Audit("rag.reindex", category="rag", action="update", resource="collection"),
    rest=Rest(status=202, examples={"chunkSize": 800}),
    guard=Guard(overwrites=True),
)
async def rag_reindex(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    chunkSize: ChunkSize | None = None,
    chunkOverlap: ChunkOverlap | None = None,
    embeddingModel: EmbeddingModel | None = None,
) -> Reindexing:
    """Split and embed all documents of a collection again, from their stored texts.

    You can search meanwhile: each document is found in its old form until the new one is ready.

    chunkSize: the most characters of a chunk; null keeps the present size.
    chunkOverlap: characters that a chunk repeats of the one before; null keeps the present number.
    embeddingModel: the model that makes the vectors; null keeps the present one.
    """
    async with FREEZES.writing(call) as unit:
        row = await load_collection(unit.execute, call, name)
        size = row.chunk_size if chunkSize is None else chunkSize
        overlap = row.chunk_overlap if chunkOverlap is None else chunkOverlap
        if overlap >= size:
            raise OverlapTooLarge(details={"chunkSize": size, "chunkOverlap": overlap})
        model = embeddingModel or row.embedding_model
        values: dict[str, Any] = {"chunk_size": size, "chunk_overlap": overlap, "embedding_model": model}
        conditions = (collections.c.app_id == app_id, collections.c.id == row.id)
        await unit.execute(update(collections).where(*conditions).values(**values, updated_at=call.now))
        arguments = {"app_id": app_id, "collection_id": row.id}
        tenant = call.require_app().organisation_id
        await call.services.jobs.enqueue(unit, "rag_begin_reindexing", arguments, tenant=tenant)
    call.audit.resource_id = row.id
    call.audit.data |= {"name": name, **values}
    return {
        "message": "All documents will be made ready anew.",
        "chunkSize": size,
        "chunkOverlap": overlap,
        "embeddingModel": model,
    }
