"""The jobs of retrieval: one prepares a document, one deletes what is left over, the sweep finds what was forgotten."""

from datetime import timedelta

from sqlalchemy import exists, select, update

from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.sql.database import Database
from baobab.tools.core import AppNotFound, Job, RetryLater, Services
from baobab.tools.rag.cleaning import clean, enqueue_cleaning
from baobab.tools.rag.ingest import enqueue_preparation
from baobab.tools.rag.preparation import prepare
from baobab.tools.rag.tables import FREEZES, documents
from baobab.tools.rag.toolset import rag
from baobab.tools.rag.vector_leftovers import delete_left_files

_MOVING_SECONDS = 10.0
_FORGOTTEN = timedelta(seconds=60)
_MOST_SWEPT = 5
"""How often a document is taken up again whose jobs ended without saying how."""
_ROUND = 200
_AT_ONCE = 50
_GIVEN_UP = "Reading the document ended the server's work again and again."


@rag.job(at_once=4, cancel="rag_documents_delete")
async def rag_prepare(job: Job, app_id: str, document_id: str) -> None:
    """Prepares the next version of a document."""
    try:
        app = await job.services.directory.app(app_id)
    except AppNotFound:
        return
    if job.services.stores_of(app.region).database is job.database:
        await prepare(job, app, document_id)
    # Otherwise the app has moved, and the sweep of its new region takes the document up.


@rag.job()
async def rag_clean(job: Job, app_id: str, collection_id: str, document_id: str = "") -> None:
    """Deletes texts, chunks and vectors that no longer belong to a document."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    database = services.stores_of(app.region).database
    if database is not job.database:
        # The app has moved, and what was to be deleted went along.
        async with database.writing_unit(lock=app_id) as unit:
            await enqueue_cleaning(services, unit, app_id, collection_id, document_id, app.organisation_id)
        return
    if not await clean(job, app_id, collection_id, document_id):
        raise RetryLater(_MOVING_SECONDS, "the app is being moved")


@rag.job(cancel=True)
async def rag_begin_reindexing(job: Job, app_id: str, collection_id: str) -> None:
    """Asks for a new version of each document that is searched, from the text that is kept."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    columns, after = documents.c, ""
    of_it = (columns.app_id == app_id, columns.collection_id == collection_id)
    # A document whose next version is being read already gets the new settings with that version.
    is_settled = (columns.version.is_not(None), columns.next_version.is_(None) | columns.keeps_text)
    while True:
        async with job.writing(lock=app_id, bulk=True) as unit:
            if await FREEZES.is_frozen(unit.execute, app_id):
                raise RetryLater(_MOVING_SECONDS, "the app is being moved")
            query = select(documents).where(*of_it, *is_settled, columns.id > after).order_by(columns.id)
            rows = (await unit.execute(query.limit(_AT_ONCE))).all()
            for row in rows:
                values = {
                    "status": "pending",
                    "error_message": None,
                    "next_version": max(row.version, row.next_version or 0) + 1,
                    "keeps_text": True,
                    "next_writer": row.writer,
                    "chunks_done": 0,
                    "chunks_total": 0,
                    "attempts": 0,
                    "updated_at": services.clock.now(),
                }
                await unit.execute(
                    update(documents).where(columns.app_id == app_id, columns.id == row.id).values(values)
                )
                await enqueue_preparation(services, unit, app_id, row.id, app.organisation_id)
        if len(rows) < _AT_ONCE:
            return
        after = rows[-1].id


@rag.job(every=600.0)
async def rag_leftovers(job: Job) -> None:
    """Deletes the files of vectors whose collections are gone."""
    await delete_left_files(job.services)


@rag.job(every=60.0)
async def rag_sweep(job: Job) -> None:
    """Takes up documents whose job is gone: it gave up, or stayed behind when the app was moved."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        await _sweep(services, database)


async def _sweep(services: Services, database: Database) -> None:
    before = services.clock.now() - _FORGOTTEN
    has_job = exists().where(jobs.c.id == documents.c.ingest_id, jobs.c.finished_at.is_(None))
    is_forgotten = (
        documents.c.status.in_(("pending", "processing")),
        documents.c.updated_at < before,
        ~has_job,
        FREEZES.is_thawed(documents.c.app_id),
    )
    async with database.reading() as connection:
        rows = (await connection.execute(select(documents).where(*is_forgotten).limit(_ROUND))).all()
    for row in rows:
        try:
            app = await services.directory.app(row.app_id)
        except AppNotFound:
            continue
        if services.stores_of(app.region).database is not database:
            continue
        is_document = (documents.c.app_id == row.app_id, documents.c.id == row.id)
        async with database.writing_unit(lock=row.app_id) as unit:
            if (await unit.execute(select(documents.c.id).where(*is_document, *is_forgotten))).first() is None:
                continue
            values = {"attempts": row.attempts + 1, "updated_at": services.clock.now()}
            if row.attempts >= _MOST_SWEPT:
                values |= {"status": "failed", "error_message": _GIVEN_UP, "next_version": None, "ingest_id": None}
            await unit.execute(update(documents).where(*is_document).values(values))
            if row.attempts < _MOST_SWEPT:
                await enqueue_preparation(services, unit, row.app_id, row.id, app.organisation_id)
