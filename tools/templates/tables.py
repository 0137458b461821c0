"""The tables of clones, in the installation's own database: clones cross regions."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

_ID = String(36)

clone_jobs = Table(
    "clone_jobs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("source_app_id", _ID, nullable=False, index=True),
    # The id that the copy has; each retry has another. No app has it before the job is completed.
    Column("dest_app_id", _ID, nullable=False),
    Column("dest_region", String(40), nullable=False),
    # Who clones, and in the form of tools/core/auth/proposers.py; and into which organisation.
    Column("account_id", _ID, nullable=False),
    Column("maker", Json, nullable=False),
    Column("organisation_id", _ID, nullable=False, index=True),
    Column("name", String(63), nullable=False),
    # One of `STATES`.
    Column("status", String(40), nullable=False),
    # Whether what was copied is to be removed, because the clone has failed.
    Column("is_failing", Boolean, nullable=False),
    Column("error_message", Text),
    # How often the steps were tried since the job was asked for; and how often it was asked for again.
    Column("attempts", Integer, nullable=False),
    Column("retry_count", Integer, nullable=False),
    # JSON: the values of environment variables that came with the request, by function, and the keys that are minted.
    Column("env_values", Sealed),
    Column("warnings", Json, nullable=False),
    Column("unfilled_env_vars", Json),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("completed_at", Instant),
    Index("ix_clone_jobs_account_id_created_at", "account_id", "created_at"),
)

clone_origins = Table(
    "clone_origins",
    metadata,
    Column("app_id", _ID, ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True),
    Column("job_id", _ID, nullable=False),
    Column("source_app_id", _ID, nullable=False),
    Column("source_name", String(63), nullable=False),
    # Settings of the source that the copy does not have until its owner sets them, by column of `apps`.
    Column("withheld", Json, nullable=False),
    Column("unfilled_env_vars", Json),
    Column("created_at", Instant, nullable=False),
)

clone_webhooks = Table(
    "clone_webhooks",
    metadata,
    Column("id", _ID, ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True),
    Column("url", String(2000), nullable=False),
    Column("secret", Sealed, nullable=False),
    Column("updated_at", Instant, nullable=False),
)


def seal_context(table: Table, column: str, id_: str) -> str:
    """Returns the context that a sealed value is bound to, as the rotation of secrets expects it."""
    return f"{table.name}.{column}:{id_}"
