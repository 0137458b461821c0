"""How a document gets its next version: a row says what is wanted, and a job prepares it (preparation.py)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import bindparam, func, insert, select, update

from baobab.runtime.documents.child.kinds import MEDIA_TYPES
from baobab.runtime.net.egress import Egress
from baobab.storage.sql.database import Unit
from baobab.tools.core import Account, AppKey, Call, EndUser, Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.guard.texts import Writer, find_writer
from baobab.tools.rag.access import Row, owner_of
from baobab.tools.rag.errors import FileRefused, NotForUsers, SourceMissing, StorageFull, TooManyDocuments
from baobab.tools.rag.schemas import MOST_DOCUMENTS, IngestResult
from baobab.tools.rag.tables import collections, documents, texts

PART = 64 * 1024
"""The characters of one part of a text, but for the last."""
WILL_BE_READ = "The document will be read soon."
_JOB = "rag_prepare"
# Built once, since that takes longer than to run them.
_APP: Any = bindparam("of_app")
_OF_COLLECTION = (documents.c.app_id == _APP, documents.c.collection_id == bindparam("of_collection"))
_FIND_SAME = select(documents.c.id, documents.c.metadata, documents.c.status).where(
    *_OF_COLLECTION,
    documents.c.sha256 == bindparam("digest"),
    documents.c.user_id.is_not_distinct_from(bindparam("of_user")),
)
_COUNT_DOCUMENTS = select(func.count()).where(*_OF_COLLECTION)
_INSERT_DOCUMENT, _INSERT_TEXT = insert(documents), insert(texts)
CHANGE_DOCUMENT = update(documents).where(documents.c.app_id == _APP, documents.c.id == bindparam("of_document"))
_COUNT_BYTES = select(func.coalesce(func.sum(collections.c.size_bytes), 0)).where(collections.c.app_id == _APP)
_ADD_BYTES = (
    update(collections)
    .where(collections.c.app_id == _APP, collections.c.id == bindparam("of_collection"))
    .values(size_bytes=collections.c.size_bytes + bindparam("more"))
)
# For any other declared type, the content decides when the file is read.
_WITHOUT_TEXT = ("image/", "audio/", "video/", "font/", "model/")
_NEVER_READ = {
    "application/gzip",
    "application/msword",
    "application/vnd.ms-excel",
    "application/vnd.ms-powerpoint",
    "application/vnd.rar",
    "application/x-7z-compressed",
    "application/x-tar",
    "application/zip",
}


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """Where a document comes from: a text, a file of the app, or an address on the web.

    digest: SHA-256 of its content, in hexadecimal; of the address where the content is not known yet.
    """

    text: str | None
    object_id: str | None
    url: str | None
    filename: str | None
    media_type: str | None
    digest: str
    writer: Writer | None
    """Who stores it, or stored the file."""

    @property
    def size_bytes(self) -> int:
        """The bytes of its text; 0 while it has not been read."""
        return 0 if self.text is None else len(self.text.encode())


async def find_source(
    call: Call, text: str | None, object_id: str | None, url: str | None, filename: str | None
) -> DocumentSource:
    """Returns the source of a document: a text, a file or an address, of which exactly one must be given.

    Raises SourceMissing, FileRefused, NotForUsers, the errors of the guarded client for an address, and those of
    `files_locate` for a file that the caller may not read.
    """
    if [text, object_id, url].count(None) != 2:
        raise SourceMissing
    writer = find_writer(call)
    if text is not None:
        return DocumentSource(text, None, None, filename, None, hashlib.sha256(text.encode()).hexdigest(), writer)
    if url is not None:
        # Otherwise strangers could have this server fetch any address.
        if isinstance(call.caller, EndUser):
            raise NotForUsers("Users of the app can add texts and files, but no web addresses.")
        http_client = call.services.http_client
        assert isinstance(http_client, Egress)
        # A literal IP address is checked now, a host name when it is fetched.
        http_client.check_url(url)
        digest = hashlib.sha256(b"url\0" + url.encode()).hexdigest()
        # Nobody here wrote the page, whoever names its address.
        writer = "outside" if writer == "outside" else None
        return DocumentSource(None, None, url, filename or name_page(url), None, digest, writer)
    file = await call.invoke("files_locate", app_id=call.require_app().id, object_id=object_id)
    kind = file["content_type"].partition(";")[0].strip().lower()
    if kind not in MEDIA_TYPES.values() and (kind.startswith(_WITHOUT_TEXT) or kind in _NEVER_READ):
        raise FileRefused(
            f"A file of the type {kind} has no text that is read.",
            details={"content_type": kind, "supported": sorted(MEDIA_TYPES.values())},
        )
    if writer != "outside":
        writer = file["writer"]
    return DocumentSource(
        None, object_id, None, filename or file["filename"], file["content_type"], file["sha256"], writer
    )


def name_page(url: str) -> str:
    """Returns what a document from an address is called: the end of its path, or the host."""
    parts = urlsplit(url)
    return (parts.path.rpartition("/")[2] or parts.hostname or "page")[-255:]


async def add_document(
    call: Call, unit: Unit, collection: Row, source: DocumentSource, metadata: dict[str, Any]
) -> tuple[str, IngestResult]:
    """Inserts a document and asks for its first version; answers the one that is there if it has the same content.

    Returns the id of the document too. Raises TooManyDocuments, StorageFull. unit: holds the app's lock.
    """
    user_id = owner_of(call.caller)
    of_collection = {"of_app": collection.app_id, "of_collection": collection.id}
    for row in await unit.execute(_FIND_SAME, {**of_collection, "digest": source.digest, "of_user": user_id}):
        if row.metadata == metadata and row.status != "failed":
            message = "The collection has a document with this content and metadata already."
            return row.id, {"documentId": row.id, "status": row.status, "message": message}
    if (await unit.execute(_COUNT_DOCUMENTS, of_collection)).scalar_one() >= MOST_DOCUMENTS:
        raise TooManyDocuments(details={"limit": MOST_DOCUMENTS})
    document_id = call.services.ids.uuid_at(call.now)
    identity = {"app_id": collection.app_id, "document_id": document_id, "collection_id": collection.id}
    await count_bytes(unit, call.require_app(), collection.id, source.size_bytes)
    values = _describe_version(call, 1, source, metadata)
    new_row = {
        **values,
        "app_id": collection.app_id,
        "id": document_id,
        "collection_id": collection.id,
        "user_id": user_id,
        "chunk_count": 0,
        "created_at": call.now,
    }
    await unit.write(_INSERT_DOCUMENT, new_row)
    await _begin_preparation(call, unit, identity, values, source)
    return document_id, {"documentId": document_id, "status": "pending", "message": WILL_BE_READ}


async def begin_version(
    call: Call, unit: Unit, document: Row, source: DocumentSource, metadata: dict[str, Any]
) -> None:
    """Asks for the next version of a document. What another job prepares of it is given up.

    Raises StorageFull. unit: holds the app's lock.
    """
    version = max(document.version or 0, document.next_version or 0) + 1
    await count_bytes(unit, call.require_app(), document.collection_id, source.size_bytes - document.size_bytes)
    values = _describe_version(call, version, source, metadata)
    await unit.write(CHANGE_DOCUMENT, {"of_app": document.app_id, "of_document": document.id, **values})
    identity = {"app_id": document.app_id, "document_id": document.id, "collection_id": document.collection_id}
    await _begin_preparation(call, unit, identity, values, source)


def _describe_version(call: Call, version: int, source: DocumentSource, metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns of a document whose next version is prepared by a job. The caller enqueues the job."""
    return {
        "filename": source.filename,
        "object_id": source.object_id,
        "url": source.url,
        "media_type": source.media_type,
        "sha256": source.digest,
        "size_bytes": source.size_bytes,
        "metadata": metadata,
        "status": "pending",
        "error_message": None,
        "next_version": version,
        "next_writer": source.writer,
        "ingest_id": call.services.ids.uuid(),
        "chunks_done": 0,
        "chunks_total": 0,
        "attempts": 0,
        "keeps_text": False,
        "key_id": _find_paying_key(call),
        "updated_at": call.now,
    }


async def _begin_preparation(
    call: Call, unit: Unit, identity: Mapping[str, Any], values: Mapping[str, Any], source: DocumentSource
) -> None:
    """Inserts the text, if there is one yet, and enqueues the job. identity: as `insert_text` has it."""
    if source.text is not None:
        await insert_text(unit, {**identity, "version": values["next_version"]}, source.text, [])
    arguments = {"app_id": identity["app_id"], "document_id": identity["document_id"]}
    tenant = call.require_app().organisation_id
    await call.services.jobs.enqueue(unit, _JOB, arguments, job_id=values["ingest_id"], tenant=tenant)


async def enqueue_preparation(services: Services, unit: Unit, app_id: str, document_id: str, tenant: str) -> None:
    """Asks for the job that prepares a document's next version, in place of any other."""
    ingest_id = services.ids.uuid()
    await unit.write(CHANGE_DOCUMENT, {"of_app": app_id, "of_document": document_id, "ingest_id": ingest_id})
    arguments = {"app_id": app_id, "document_id": document_id}
    await services.jobs.enqueue(unit, _JOB, arguments, job_id=ingest_id, tenant=tenant)


async def count_bytes(unit: Unit, app: App, collection_id: str, more_bytes: int) -> None:
    """Counts bytes of a text that is added. Raises StorageFull if they are more than the app may keep.

    more_bytes: negative for a text that is replaced by a shorter one. unit: holds the app's lock.
    """
    if not more_bytes:
        return
    limit = app.plan.file_bytes
    if limit is not None and more_bytes > 0:
        used_bytes = int((await unit.execute(_COUNT_BYTES, {"of_app": app.id})).scalar_one())
        if used_bytes + more_bytes > limit:
            raise StorageFull(
                f"The documents of the app have {used_bytes} of {limit} bytes; {more_bytes} more do not fit.",
                details={"current_usage_bytes": used_bytes, "limit_bytes": limit},
            )
    await unit.write(_ADD_BYTES, {"of_app": app.id, "of_collection": collection_id, "more": more_bytes})


async def insert_text(unit: Unit, identity: Mapping[str, Any], text: str, blocks: list[list[Any]]) -> None:
    """Inserts the text of a version. identity: the columns that say which one: app, document, collection and version.

    blocks: kind, level, page, start and end of each, in their order.
    """
    for start in range(0, len(text), PART):
        blocks_of_part = [block for block in blocks if start <= block[3] < start + PART]
        row = {**identity, "part": start // PART, "text": text[start : start + PART], "blocks": blocks_of_part}
        await unit.write(_INSERT_TEXT, row)


def is_document(document: Row) -> tuple[Any, Any]:
    """Returns the conditions for the row of a document."""
    return documents.c.app_id == document.app_id, documents.c.id == document.id


def _find_paying_key(call: Call) -> str | None:
    caller = call.caller
    return caller.key_id if isinstance(caller, (Account, AppKey, EndUser)) else None
