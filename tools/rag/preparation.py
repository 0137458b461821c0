"""Prepares the next version of a document: reads it, splits it, makes its vectors, and puts it in the old one's place.

Each step is a transaction that only the latest attempt of the document's latest job can make, so a process that is
killed anywhere leaves a document that the next attempt goes on with where this one was.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import and_, bindparam, delete, insert, select, update

from baobab.runtime.documents.document import Block, ParsedDocument, UnreadableDocument
from baobab.runtime.documents.parsing import parse_document
from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.retrieval.chunks import Chunk, TooManyChunks, split_text
from baobab.storage.sql.database import Unit
from baobab.storage.sql.full_text import split_words, tag_words
from baobab.tools.core import AppKey, BaobabError, Job, NotFound, RateLimited, RetryLater, Services, Unavailable
from baobab.tools.core.auth.directory import App
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import Internal
from baobab.tools.rag.cleaning import enqueue_cleaning
from baobab.tools.rag.downloads import PageRefused, download_page
from baobab.tools.rag.embedding import Embedded, embed_texts
from baobab.tools.rag.ingest import CHANGE_DOCUMENT, count_bytes, insert_text
from baobab.tools.rag.schemas import MOST_CHUNKS
from baobab.tools.rag.tables import FREEZES, chunks, collections, documents, texts, vectors
from baobab.tools.rag.toolset import FAILED, READY

_EMBEDDED_AT_ONCE = 32
_ROWS_AT_ONCE = 500
_MOVING_SECONDS = 10.0
_RETRIES = 5
_LONGEST_MESSAGE = 500
_FILE_GONE = "The file was deleted before it was read."
# Built once, since that takes longer than to run them.
_APP: Any = bindparam("of_app")
_DOCUMENT: Any = bindparam("of_document")
_FIND = (
    select(
        documents,
        collections.c.name.label("collection_name"),
        collections.c.chunk_size,
        collections.c.chunk_overlap,
        collections.c.embedding_model.label("collection_model"),
        FREEZES.is_thawed(documents.c.app_id).label("is_thawed"),
    )
    .join(collections, and_(collections.c.app_id == documents.c.app_id, collections.c.id == documents.c.collection_id))
    .where(documents.c.app_id == _APP, documents.c.id == _DOCUMENT)
)
_CHANGE_COLLECTION = update(collections).where(
    collections.c.app_id == _APP, collections.c.id == bindparam("of_collection")
)
_COUNT_REVISION = _CHANGE_COLLECTION.values(revision=collections.c.revision + 1)
_INSERT_CHUNKS, _INSERT_VECTORS = insert(chunks), insert(vectors)


def _of_version(table: Any) -> tuple[Any, ...]:
    """Returns the conditions for the rows of one version of a document."""
    return table.c.app_id == _APP, table.c.document_id == _DOCUMENT, table.c.version == bindparam("of_version")


_DELETIONS = [delete(table).where(*_of_version(table)) for table in (texts, chunks, vectors)]
_READ_TEXT = select(texts.c.text, texts.c.blocks).where(*_of_version(texts)).order_by(texts.c.part)
_READ_CHUNKS = (
    select(chunks.c.position, chunks.c.headings, chunks.c.text)
    .where(*_of_version(chunks), chunks.c.position.between(bindparam("first"), bindparam("last")))
    .order_by(chunks.c.position)
)


class _Superseded(Exception):
    """Another job prepares the document, or it is gone."""


class _Refused(Exception):
    """The document cannot be prepared. `reason` is a sentence for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def prepare(job: Job, app: App, document_id: str) -> None:
    """Makes one attempt. Raises JobLost, RetryLater."""
    preparation = _Preparation(job, app, document_id)
    try:
        await preparation.run()
    except _Superseded:
        return
    except (UnreadableDocument, PageRefused, _Refused) as exc:
        await preparation.fail(exc.reason)
    except BaobabError as exc:
        await preparation.fail_or_retry(exc)


class _Preparation:
    def __init__(self, job: Job, app: App, document_id: str) -> None:
        self._job, self._app, self._document_id = job, app, document_id
        self._services: Services = job.services
        # Its row, with what its collection says, as the transaction found and changed it.
        self._document: Any = None

    async def run(self) -> None:
        async with self._writing() as unit:
            await self._set(unit, status="processing")
        if self._document.chunks_done == self._document.chunks_total:
            await self._split()
        while self._document.chunks_done < self._document.chunks_total:
            await self._embed()

    @asynccontextmanager
    async def _writing(self, *, last: bool = False, bulk: bool = False) -> AsyncIterator[Unit]:
        """Opens a transaction of this attempt, and reads the rows of the document and its collection again in it."""
        async with self._job.writing(lock=self._app.id, last=last, bulk=bulk) as unit:
            rows = (await unit.execute(_FIND, self._which)).all()
            is_thawed = rows[0].is_thawed if rows else not await FREEZES.is_frozen(unit.execute, self._app.id)
            if not is_thawed:
                raise RetryLater(_MOVING_SECONDS, "the app is being moved")
            if not rows or rows[0].ingest_id != self._job.id:
                raise _Superseded
            self._document = SimpleNamespace(**rows[0]._asdict())
            yield unit

    @property
    def _which(self) -> dict[str, Any]:
        """The parameters that say which document."""
        return {"of_app": self._app.id, "of_document": self._document_id}

    @property
    def _of_next(self) -> dict[str, Any]:
        """The parameters that say which version is being prepared."""
        return {**self._which, "of_version": self._document.next_version}

    async def _set(self, unit: Unit, **values: Any) -> None:
        values["updated_at"] = self._services.clock.now()
        await unit.write(CHANGE_DOCUMENT, {**self._which, **values})
        vars(self._document).update(values)

    async def _split(self) -> None:
        """Reads the document and inserts its chunks; the blocks that were found, too."""
        parsed_document = await (self._read_kept() if self._document.keeps_text else self._parse())
        text = parsed_document.text
        size, overlap = self._document.chunk_size, self._document.chunk_overlap
        try:
            chunks = split_text(text, parsed_document.blocks, size=size, overlap=overlap, most=MOST_CHUNKS)
        except TooManyChunks as exc:
            raise _Refused(f"The document has more than {MOST_CHUNKS} chunks: use a larger chunkSize.") from exc
        if not chunks:
            raise _Refused("The document has no text.")
        # Random, so that the numbers of documents do not meet; in a row, which is how an index likes them.
        first_number = int(self._services.ids.hex(12)[:11], 16) << 16
        for start in range(0, len(chunks), _ROWS_AT_ONCE):
            end = min(start + _ROWS_AT_ONCE, len(chunks))
            rows = [self._build_chunk(first_number, number, text, chunks[number]) for number in range(start, end)]
            values: dict[str, Any] = {}
            async with self._writing(bulk=True) as unit:
                if start == 0:
                    size_bytes = await self._replace_text(unit, parsed_document)
                    values = {
                        "size_bytes": size_bytes,
                        "title": parsed_document.title,
                        "pages": parsed_document.pages,
                        "media_type": parsed_document.media_type[:255],
                    }
                await unit.execute(_INSERT_CHUNKS, rows)
                # An attempt that finds no total begins anew.
                await self._set(unit, chunks_done=0, chunks_total=len(chunks) if end == len(chunks) else 0, **values)

    async def _replace_text(self, unit: Unit, parsed_document: ParsedDocument) -> int:
        """Inserts the text of the version, and deletes what earlier attempts have stored of it.

        Returns the bytes of the text.
        """
        for deletion in _DELETIONS:
            await unit.execute(deletion, self._of_next)
        document, size = self._document, len(parsed_document.text.encode())
        await count_bytes(unit, self._app, document.collection_id, size - document.size_bytes)
        blocks = [[block.kind, block.level, block.page, block.start, block.end] for block in parsed_document.blocks]
        identity = {
            "app_id": document.app_id,
            "document_id": document.id,
            "collection_id": document.collection_id,
            "version": document.next_version,
        }
        await insert_text(unit, identity, parsed_document.text, blocks)
        return size

    def _build_chunk(self, first_number: int, position: int, text: str, chunk: Chunk) -> dict[str, Any]:
        document, content = self._document, text[chunk.start : chunk.end]
        words = split_words("\n".join((*chunk.headings, content)))
        return {
            "app_id": document.app_id,
            "document_id": document.id,
            "version": document.next_version,
            "position": position,
            "number": first_number + position,
            "collection_id": document.collection_id,
            "start_char": chunk.start,
            "end_char": chunk.end,
            "page": chunk.page,
            "headings": list(chunk.headings),
            "text": content,
            "words": " ".join(tag_words(document.collection_id, words)),
        }

    async def _parse(self) -> ParsedDocument:
        """Raises UnreadableDocument, PageRefused, _Refused."""
        document = self._document
        with tempfile.TemporaryDirectory(prefix="baobab-rag-") as folder:
            source = Path(folder) / "document"
            if document.url is not None:
                name, media_type = document.filename, await download_page(self._services, document.url, source)
            elif document.object_id is None:
                async with self._job.database.reading() as connection:
                    parts = (await connection.execute(_READ_TEXT, self._of_next)).all()
                source.write_text("".join(part.text for part in parts))
                name, media_type = document.filename or "text.md", None
            else:
                name, media_type = await self._fetch(document.object_id, source), document.media_type
            async with network_wait():
                return await parse_document(source, name=document.filename or name, media_type=media_type)

    async def _read_kept(self) -> ParsedDocument:
        """Reads the text and the blocks of the version that searches see."""
        document = self._document
        async with self._job.database.reading() as connection:
            parts = (await connection.execute(_READ_TEXT, {**self._which, "of_version": document.version})).all()
        blocks = tuple(Block(*block) for part in parts for block in part.blocks)
        text = "".join(part.text for part in parts)
        return ParsedDocument(text, blocks, document.media_type or "text/plain", document.title, document.pages)

    async def _fetch(self, object_id: str, target: Path) -> str:
        """Writes the bytes of a file to a path and returns the file's name. Raises _Refused."""
        try:
            stored_file, _ = await self._job.registry.run(
                self._job.registry.find("files_locate"),
                {"app_id": self._app.id, "object_id": object_id},
                AppKey(self._app.id, self._document.id),
                RequestContext("job", self._job.id),
            )
        except NotFound as exc:
            raise _Refused(_FILE_GONE) from exc
        reader = await self._services.stores_of(self._app.region).objects.get(stored_file["store_key"])
        if reader is None:
            raise _Refused(_FILE_GONE)
        async with aclosing(reader):
            with target.open("wb") as file:
                async for piece in reader:
                    file.write(piece)
        return str(stored_file["filename"])

    async def _embed(self) -> None:
        """Makes the vectors of the next chunks; with those of the last ones, the version takes the old one's place."""
        chunks_done = self._document.chunks_done
        range_to_embed = {"first": chunks_done, "last": chunks_done + _EMBEDDED_AT_ONCE - 1}
        async with self._job.database.reading() as connection:
            rows = (await connection.execute(_READ_CHUNKS, {**self._of_next, **range_to_embed})).all()
        contents = ["\n".join((*row.headings, row.text)) for row in rows]
        # The app itself calls the model and pays, whoever added the document.
        payer = AppKey(self._app.id, self._document.key_id or "rag")
        context = RequestContext("job", self._job.id)
        async with network_wait():
            embedding = await embed_texts(
                self._job.registry, payer, context, self._app.id, contents, self._document.collection_model
            )
        is_last = chunks_done + len(rows) == self._document.chunks_total
        async with self._writing(last=is_last, bulk=True) as unit:
            await self._insert_vectors(unit, [row.position for row in rows], embedding)
            if is_last:
                await self._publish(unit, embedding)
            else:
                await self._set(unit, chunks_done=chunks_done + len(rows), attempts=0)

    async def _insert_vectors(self, unit: Unit, positions: Sequence[int], embedding: Embedded) -> None:
        document = self._document
        if document.collection_model is None:
            changes = {"embedding_model": embedding.model, "dimensions": embedding.dimensions}
            identity = {"of_app": self._app.id, "of_collection": document.collection_id}
            await unit.write(_CHANGE_COLLECTION, {**identity, **changes})
        rows = [
            {
                "app_id": document.app_id,
                "document_id": document.id,
                "version": document.next_version,
                "position": position,
                "collection_id": document.collection_id,
                "dimensions": embedding.dimensions,
                "vector": vector,
            }
            for position, vector in zip(positions, embedding.vectors, strict=True)
        ]
        await unit.execute(_INSERT_VECTORS, rows)

    async def _publish(self, unit: Unit, embedding: Embedded) -> None:
        """Puts the version in the place of the one before."""
        document, version = self._document, self._document.next_version
        await self._set(
            unit,
            status="ready",
            error_message=None,
            version=version,
            writer=document.next_writer,
            next_version=None,
            keeps_text=False,
            ingest_id=None,
            attempts=0,
            chunks_done=document.chunks_total,
            chunk_count=document.chunks_total,
            embedding_model=embedding.model,
            dimensions=embedding.dimensions,
        )
        await unit.write(_COUNT_REVISION, {"of_app": self._app.id, "of_collection": document.collection_id})
        if version > 1:
            # Chunks of the earlier version, which searches have seen, or which was given up unfinished.
            await self._clean(unit)
        await self._emit(unit, READY, chunk_count=document.chunks_total)

    async def fail_or_retry(self, error: BaobabError) -> None:
        """Leaves the document to a later attempt if the error may end by itself, otherwise says that it failed."""
        if not isinstance(error, (Unavailable, RateLimited, Internal)) and error.status < 500:
            await self.fail(error.message)
            return
        try:
            async with self._writing() as unit:
                attempts = self._document.attempts + 1
                await self._set(unit, attempts=attempts)
        except _Superseded:
            return
        if attempts > _RETRIES:
            await self.fail(error.message)
            return
        raise RetryLater(2.0**attempts, error.message) from error

    async def fail(self, reason: str) -> None:
        """Says why there is no next version. The one that searches see stays."""
        try:
            async with self._writing(last=True) as unit:
                await self._set(
                    unit,
                    status="failed",
                    error_message=reason[:_LONGEST_MESSAGE],
                    next_version=None,
                    keeps_text=False,
                    ingest_id=None,
                )
                await self._clean(unit)
                await self._emit(unit, FAILED, reason=reason[:_LONGEST_MESSAGE])
        except _Superseded:
            return

    async def _clean(self, unit: Unit) -> None:
        app = self._app
        arguments = (app.id, self._document.collection_id, self._document.id, app.organisation_id)
        await enqueue_cleaning(self._services, unit, *arguments)

    async def _emit(self, unit: Unit, event: str, **data: Any) -> None:
        document = self._document
        data |= {
            "document_id": document.id,
            "collection_id": document.collection_id,
            "collection": document.collection_name,
            "filename": document.filename,
            "user_id": document.user_id,
        }
        await self._services.jobs.emit(unit, event, app_id=self._app.id, data=data, tenant=self._app.organisation_id)
