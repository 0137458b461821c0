"""The rows of the inbox: decisions that can still be taken back, and calls that a person wants to see later."""

from sqlalchemy import Column, ForeignKey, Index, String, Table, text

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata


def _of_account(*, primary_key: bool = False) -> Column[str]:
    owner = ForeignKey("accounts.id", ondelete="CASCADE")
    return Column("account_id", String(36), owner, primary_key=primary_key, nullable=False)


_IS_OPEN = text("state IN ('held', 'due')")

# One row for each decision that was made in the console and waits before it counts (holding.py).
held_decisions = Table(
    "held_decisions",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("approval_id", String(30), nullable=False),
    Column("organisation_id", String(36), nullable=False),
    _of_account(),
    # With which credential it was made; its rights are checked again when the decision counts.
    Column("caller", Json, nullable=False),
    # `approved` or `rejected`.
    Column("status", String(10), nullable=False),
    # The reason and the arguments of the decision, and where it came from. Erased once it is over.
    Column("decision", Sealed),
    # `held`, then `due`; in the end `counted`, `taken_back`, `dropped` (another decision was first) or `refused`.
    Column("state", String(12), nullable=False),
    # The error with which it was refused when it was due.
    Column("problem", Json),
    Column("created_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("finished_at", Instant),
    Index("ix_held_decisions_account_id_created_at", "account_id", "created_at"),
    # A person has at most one open decision about a call.
    Index(
        "uq_held_decisions_open",
        "approval_id",
        "account_id",
        unique=True,
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    ),
)

approval_snoozes = Table(
    "approval_snoozes",
    metadata,
    Column("approval_id", String(30), primary_key=True),
    _of_account(primary_key=True),
    Column("until", Instant, nullable=False, index=True),
)
