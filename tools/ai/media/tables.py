"""The table of generation jobs, in the database of their app's region. Money is integer nano-dollars."""

from sqlalchemy import BigInteger, Column, ColumnElement, Index, Integer, String, Table, Text, and_

from baobab.storage.sql.tables import Instant, Json, metadata
from baobab.tools.core import Freezes

generation_jobs = Table(
    "generation_jobs",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # Indexed for workers of the version before revision 0081, who find rows by it alone.
    Column("id", String(36), primary_key=True, index=True),
    # The organisation that pays.
    Column("organisation_id", String(36), nullable=False),
    # `image` or `video`.
    Column("kind", String(10), nullable=False),
    Column("model", String(200), nullable=False),
    # The submitter (submitters.py).
    Column("submitter", Text, nullable=False),
    Column("status", String(20), nullable=False),
    # The request to the model; removed when the job ends.
    Column("request", Json),
    # The handle with which the provider is asked; null until the provider has accepted.
    Column("handle", Text),
    # How often in a row the provider has failed.
    Column("tries", Integer, nullable=False),
    # The durable job that makes it; null after a move until a new one has taken over.
    Column("worker", String(200)),
    # The key in the object store, the type and the size of each file; null until completed.
    Column("files", Json),
    Column("error", Text),
    Column("reservation_id", String(36), nullable=False),
    Column("reserved", BigInteger, nullable=False),
    # The charge when it is settled; null until completed.
    Column("cost", BigInteger),
    Column("created_at", Instant, nullable=False),
    # The time of the last poll, to half a minute.
    Column("polled_at", Instant, nullable=False),
    Column("released_at", Instant),
    Column("ended_at", Instant),
    Column("settled_at", Instant),
    # The time when its files were deleted.
    Column("emptied_at", Instant),
)
_columns = generation_jobs.c
UNENDED = _columns.ended_at.is_(None)
HOLDING = _columns.settled_at.is_(None) & _columns.released_at.is_(None)
"""The condition for jobs with reserved credits."""
Index("ix_generation_jobs_unended", _columns.created_at, sqlite_where=UNENDED, postgresql_where=UNENDED)
Index("ix_generation_jobs_holding", _columns.polled_at, sqlite_where=HOLDING, postgresql_where=HOLDING)
Index("ix_generation_jobs_ended_at", _columns.ended_at)

FREEZES = Freezes("media")


def is_job(app_id: str, job_id: str) -> ColumnElement[bool]:
    """Returns the condition for the row of one job."""
    return and_(_columns.app_id == app_id, _columns.id == job_id)


def folder(app_id: str, job_id: str) -> str:
    """Returns the prefix of a job's files in the object store."""
    return f"{app_id}/generated/{job_id}/"
