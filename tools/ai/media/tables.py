"""The rows of generation jobs, in the database of their app's region. Money is integer nano-dollars."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from baobab.storage.tables import Instant, Json, metadata
from baobab.tools.core.app_freezes import Freezes

generation_jobs = Table(
    "generation_jobs",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("app_id", String(36), nullable=False, index=True),
    # Who pays.
    Column("organisation_id", String(36), nullable=False),
    # `image` or `video`.
    Column("kind", String(10), nullable=False),
    Column("model", String(200), nullable=False),
    # Whose it is (submitters.py).
    Column("submitter", Text, nullable=False),
    Column("status", String(20), nullable=False),
    # What is asked of the model; forgotten at the end.
    Column("request", Json),
    # What the provider is asked by; null until it has accepted.
    Column("handle", Text),
    # How often in a row the provider has failed.
    Column("tries", Integer, nullable=False),
    # The durable job that makes it; null where it came with a move and none has taken it up yet.
    Column("worker", String(200)),
    # Of each file its key in the object store, its type and its size; null until completed.
    Column("files", Json),
    Column("error", Text),
    Column("reservation_id", String(36), nullable=False),
    Column("reserved", BigInteger, nullable=False),
    # What is charged when it is settled; null until completed.
    Column("cost", BigInteger),
    Column("created_at", Instant, nullable=False),
    # When somebody last asked how far it is, to half a minute.
    Column("polled_at", Instant, nullable=False),
    Column("released_at", Instant),
    Column("ended_at", Instant),
    Column("settled_at", Instant),
    # When its files were deleted.
    Column("emptied_at", Instant),
)
_columns = generation_jobs.c
UNENDED = _columns.ended_at.is_(None)
HOLDING = _columns.settled_at.is_(None) & _columns.released_at.is_(None)
"""Those that have money set aside."""
Index("ix_generation_jobs_unended", _columns.created_at, sqlite_where=UNENDED, postgresql_where=UNENDED)
Index("ix_generation_jobs_holding", _columns.polled_at, sqlite_where=HOLDING, postgresql_where=HOLDING)
Index("ix_generation_jobs_ended_at", _columns.ended_at)

FREEZES = Freezes("media")


def folder(app_id: str, job_id: str) -> str:
    """Where in the object store a job's files are."""
    return f"{app_id}/generated/{job_id}/"
