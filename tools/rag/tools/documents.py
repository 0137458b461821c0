"""/v1/{app_id}/rag/collections/{name}/documents: add, list, read, replace and delete documents."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import delete, select, update

from baobab.runtime.net.addresses import AddressRefused, UrlRefused
from baobab.storage.sql.database import Unit
from baobab.tools.core import AppId, Audit, Call, Guard, Rest
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.listing import Listing
from baobab.tools.core.waiting import Waits
from baobab.tools.rag.access import (
    OF_COLLECTION,
    READERS,
    Row,
    describe_text,
    is_visible_to,
    load_collection,
    load_document,
    require_changeable,
    require_extensible,
)
from baobab.tools.rag.cleaning import request_cleaning
from baobab.tools.rag.errors import (
    CollectionNotFound,
    DocumentNotFound,
    FileRefused,
    NotForUsers,
    SourceMissing,
    StorageFull,
    TooManyDocuments,
)
from baobab.tools.rag.ingest import PART, WILL_BE_READ, add_document, begin_version, find_source, is_document
from baobab.tools.rag.schemas import (
    MOST_BODY,
    MOST_READ,
    CollectionName,
    DocumentId,
    DocumentName,
    DocumentPart,
    DocumentText,
    IngestResult,
    Metadata,
    ObjectId,
    RagDocument,
    SourceUrl,
    Status,
)
from baobab.tools.rag.tables import FREEZES, collections, documents, texts
from baobab.tools.rag.toolset import rag

_INGESTING = (
    CollectionNotFound,
    SourceMissing,
    FileRefused,
    NotForUsers,
    UrlRefused,
    AddressRefused,
    TooManyDocuments,
    StorageFull,
)


_ENDS = {"ready": "The document has been read.", "failed": "The document could not be read: `errorMessage` says why."}


def _is_read(document: RagDocument) -> bool:
    return document["status"] in ("ready", "failed")


def _add_end(result: IngestResult, document: RagDocument) -> IngestResult:
    message = result["message"]
    if message == WILL_BE_READ:
        message = _ENDS.get(document["status"], message)
    return {**result, "status": document["status"], "errorMessage": document["errorMessage"], "message": message}


@rag.tool(
    "POST /collections/{name}/ingest",
    waits=Waits(_is_read, "rag_documents_get", lambda result: {"document_id": result["documentId"]}, _add_end),
    access=OF_COLLECTION,
    effect="write",
    raises=_INGESTING,
    audit=Audit("rag.ingest", category="rag", action="create", resource="document"),
    rest=Rest(
        status=202,
        max_body=MOST_BODY,
        examples={"text": "# Holidays\n\nEverybody has 30 days.", "metadata": {"lang": "en"}},
    ),
)
async def rag_ingest(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    text: DocumentText | None = None,
    storage_object_id: ObjectId | None = None,
    url: SourceUrl | None = None,
    filename: DocumentName | None = None,
    metadata: Metadata | None = None,
) -> IngestResult:
    """Add a document to a collection: a text, an uploaded file, or a web page.

    A job reads it: wait for it with `wait_seconds`, or look with op:rag_documents_get. If the collection has a document
    with the same content and metadata already, the answer is that one.

    text: the text. Send exactly one of this, `storage_object_id` and `url`.
    storage_object_id: the id of an uploaded file.
    url: the address of a web page, or of a file on the web.
    filename: the document's name; null for that of the file or page. For a text, its ending says which type it is.
    metadata: values for the filters of op:rag_query; null is none.
    """
    source = await find_source(call, text, storage_object_id, url, filename)
    async with FREEZES.writing(call) as unit:
        collection = await load_collection(unit.execute, call, name)
        require_extensible(call.caller, collection)
        call.audit.resource_id, result = await add_document(call, unit, collection, source, metadata or {})
    call.audit.data |= {"collection": name, "filename": source.filename}
    del app_id
    return result


@rag.tool(
    "GET /collections/{name}/documents",
    access=READERS,
    effect="read",
    listing=Listing("documents", is_bare=True, continues=("cursor", "id")),
    raises=(CollectionNotFound,),
    taints=True,
)
async def rag_documents_list(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    status: Annotated[Status, Field(description="Only documents in this state.")] | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
    cursor: DocumentId | None = None,
) -> list[RagDocument]:
    """List the documents of a collection that you may see, newest first.

    status: only documents with this status; null for all.
    limit: how many at most.
    cursor: the id of the last document of the previous page; null for the first page.
    """
    del app_id
    async with call.reading() as execute:
        collection = await load_collection(execute, call, name)
        conditions = [
            documents.c.app_id == collection.app_id,
            documents.c.collection_id == collection.id,
            *is_visible_to(call.caller, collection),
        ]
        if status is not None:
            conditions.append(documents.c.status == status)
        whole_query = query = select(documents).where(*conditions)
        if cursor is not None:
            query = query.where(documents.c.id < cursor)
        rows = (await execute(query.order_by(documents.c.id.desc()).limit(limit))).all()
        await count_list(call, execute, whole_query, is_all=cursor is None and len(rows) < limit)
    call.note_texts(*(describe_text(collection, row) for row in rows))
    return [_describe(row) for row in rows]


@rag.tool(
    "GET /collections/{name}/documents/{document_id}",
    waits=Waits(_is_read),
    access=READERS,
    effect="read",
    raises=(CollectionNotFound, DocumentNotFound),
    taints=True,
)
async def rag_documents_get(call: Call, app_id: AppId, name: CollectionName, document_id: DocumentId) -> RagDocument:
    """Read a document's status: `pending`, `processing`, `ready`, or `failed` and why."""
    del app_id
    async with call.reading() as execute:
        collection = await load_collection(execute, call, name)
        document = await load_document(execute, call, collection, document_id)
    call.note_texts(describe_text(collection, document))
    return _describe(document)


@rag.tool(
    "GET /collections/{name}/documents/{document_id}/text",
    access=READERS,
    effect="read",
    raises=(CollectionNotFound, DocumentNotFound),
    taints=True,
)
async def rag_read(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    document_id: DocumentId,
    offset: Annotated[int, Field(ge=0, le=2**30)] = 0,
    limit: Annotated[int, Field(ge=1, le=MOST_READ)] = 4000,
) -> DocumentPart:
    """Read a part of a document's text, such as what surrounds a chunk that op:rag_query found.

    offset: the character to begin at, such as a chunk's `start`; continue with `nextOffset` of the previous part.
    limit: the most characters to read.
    """
    del app_id
    async with call.reading() as execute:
        collection = await load_collection(execute, call, name)
        document = await load_document(execute, call, collection, document_id)
        conditions = (
            texts.c.app_id == document.app_id,
            texts.c.document_id == document.id,
            texts.c.version == document.version,
            texts.c.part.between(offset // PART, (offset + limit) // PART),
        )
        rows = (await execute(select(texts.c.part, texts.c.text).where(*conditions).order_by(texts.c.part))).all()
    call.note_texts(describe_text(collection, document))
    begin = rows[0].part * PART if rows else 0
    joined_text = "".join(row.text for row in rows)
    part = joined_text[max(offset - begin, 0) : offset - begin + limit] if rows else ""
    end = offset + len(part)
    return {
        "documentId": document.id,
        "filename": document.filename,
        "text": part,
        "start": offset,
        "end": end,
        "nextOffset": end if end < begin + len(joined_text) else None,
    }


@rag.tool(
    "PUT /collections/{name}/documents/{document_id}",
    access=OF_COLLECTION,
    effect="write",
    raises=(DocumentNotFound, *_INGESTING),
    audit=Audit("rag.replace", category="rag", action="update", resource="document"),
    rest=Rest(status=202, max_body=MOST_BODY, examples={"text": "# Holidays\n\nEverybody has 31 days."}),
)
async def rag_documents_replace(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    document_id: DocumentId,
    text: DocumentText | None = None,
    storage_object_id: ObjectId | None = None,
    url: SourceUrl | None = None,
    filename: DocumentName | None = None,
    metadata: Metadata | None = None,
) -> IngestResult:
    """Replace a document. Searches find the old version until the new one is ready, and never both.

    text: the text. Send exactly one of this, `storage_object_id` and `url`.
    storage_object_id: the id of an uploaded file.
    url: the address of a web page, or of a file on the web.
    filename: null keeps the name.
    metadata: null keeps the metadata.
    """
    source = await find_source(call, text, storage_object_id, url, filename)
    async with FREEZES.writing(call) as unit:
        collection = await load_collection(unit.execute, call, name)
        document = await load_document(unit.execute, call, collection, document_id)
        require_changeable(call.caller, collection)
        if filename is None and storage_object_id is None:
            source = replace(source, filename=document.filename)
        new_metadata = document.metadata if metadata is None else metadata
        await begin_version(call, unit, document, source, new_metadata)
        if new_metadata != document.metadata:
            await count_revision(unit, collection)
    call.audit.resource_id = document_id
    call.audit.data |= {"collection": name, "filename": source.filename}
    del app_id
    return {"documentId": document_id, "status": "pending", "message": "The new content will be read soon."}


async def _preview_deletion(call: Call, app_id: str, name: str, document_id: str) -> str:
    del app_id
    async with call.reading() as execute:
        collection = await load_collection(execute, call, name)
        document = await load_document(execute, call, collection, document_id)
    require_changeable(call.caller, collection)
    document_name = escape_name(document.filename or document.id)
    return f"Deletes the document {document_name} with its {document.chunk_count} chunks for ever."


@rag.tool(
    "DELETE /collections/{name}/documents/{document_id}",
    access=OF_COLLECTION,
    effect="destructive",
    raises=(CollectionNotFound, DocumentNotFound, NotForUsers),
    audit=Audit("rag.delete", category="rag", action="delete", resource="document"),
    rest=Rest(status=204),
    guard=Guard(preview=_preview_deletion),
)
async def rag_documents_delete(call: Call, app_id: AppId, name: CollectionName, document_id: DocumentId) -> None:
    """Delete a document for ever, with its chunks. From then on, no search finds it."""
    del app_id
    async with FREEZES.writing(call) as unit:
        collection = await load_collection(unit.execute, call, name)
        document = await load_document(unit.execute, call, collection, document_id)
        require_changeable(call.caller, collection)
        await unit.execute(delete(documents).where(*is_document(document)))
        await count_revision(unit, collection, -document.size_bytes)
        await request_cleaning(call, unit, collection.id, document_id)
    call.audit.resource_id = document_id
    call.audit.data |= {"collection": name, "filename": document.filename}


async def count_revision(unit: Unit, collection: Row, more_bytes: int = 0) -> None:
    """Says that searches see something else from now on."""
    conditions = (collections.c.app_id == collection.app_id, collections.c.id == collection.id)
    values = {"revision": collections.c.revision + 1, "size_bytes": collections.c.size_bytes + more_bytes}
    await unit.execute(update(collections).where(*conditions).values(values))


def _describe(row: Any) -> RagDocument:
    return {
        "id": row.id,
        "collectionId": row.collection_id,
        "filename": row.filename,
        "url": row.url,
        "status": row.status,
        "chunkCount": row.chunk_count,
        "metadata": row.metadata,
        "errorMessage": row.error_message,
        "title": row.title,
        "mediaType": row.media_type,
        "pages": row.pages,
        "progress": {"chunksDone": row.chunks_done, "chunksTotal": row.chunks_total},
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }
