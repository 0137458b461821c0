"""Deletes the texts, chunks and vectors that no document has any more, some hundred at a time.

Searches and reads go through the rows of documents, so what a document has left behind is not seen from the moment at
which it is deleted or replaced; only its room is still taken.
"""

from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select, tuple_

from baobab.storage.sql.database import Unit
from baobab.tools.core import Call, Job, Services
from baobab.tools.rag.tables import FREEZES, chunks, documents, texts, vectors

_AT_ONCE = 500
_JOB = "rag_clean"


async def request_cleaning(call: Call, unit: Unit, collection_id: str, document_id: str = "") -> None:
    """Has left-over rows deleted once the unit is committed, which is one of the app's region."""
    app = call.require_app()
    await enqueue_cleaning(call.services, unit, app.id, collection_id, document_id, app.organisation_id)


async def enqueue_cleaning(
    services: Services, unit: Unit, app_id: str, collection_id: str, document_id: str, tenant: str
) -> None:
    arguments = {"app_id": app_id, "collection_id": collection_id, "document_id": document_id}
    await services.jobs.enqueue(unit, _JOB, arguments, tenant=tenant)


async def clean(job: Job, app_id: str, collection_id: str, document_id: str) -> bool:
    """Returns False if the app is frozen; what is left is then for a later attempt.

    document_id: whose rows to look at; empty for all of the collection.
    """
    for table in (vectors, chunks, texts):
        key = tuple_(*table.primary_key.columns)
        conditions: list[ColumnElement[bool]] = [
            table.c.app_id == app_id,
            table.c.document_id == document_id if document_id else table.c.collection_id == collection_id,
            ~_is_used(table),
        ]
        while True:
            async with job.writing(lock=app_id, bulk=True) as unit:
                if await FREEZES.is_frozen(unit.execute, app_id):
                    return False
                rows = (await unit.execute(select(*key.clauses).where(*conditions).limit(_AT_ONCE))).all()
                if rows:
                    await unit.execute(delete(table).where(key.in_([tuple(row) for row in rows])))
            if len(rows) < _AT_ONCE:
                break
    return True


def _is_used(table: Any) -> ColumnElement[bool]:
    """Returns whether a row belongs to a version that its document has, or is about to have."""
    is_its = and_(
        documents.c.app_id == table.c.app_id,
        documents.c.id == table.c.document_id,
        or_(documents.c.version == table.c.version, documents.c.next_version == table.c.version),
    )
    return exists().where(is_its)
