"""A decision in the console can be taken back before it counts, a call can be put off, and a call knows its node."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Sealed

revision = "0089"
down_revision = "0088"


def _belongs_to_account(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_account_id_accounts")
    return sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    is_open = sa.text("state IN ('held', 'due')")
    op.add_column("approvals", sa.Column("node", sa.String(200)))
    op.create_table(
        "held_decisions",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("approval_id", sa.String(30), nullable=False),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("account_id", sa.String(36), nullable=False),
        sa.Column("caller", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("decision", Sealed),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("problem", sa.JSON(none_as_null=True)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("due_at", Instant, nullable=False),
        sa.Column("finished_at", Instant),
        _belongs_to_account("held_decisions"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_held_decisions")),
    )
    op.create_index("ix_held_decisions_account_id_created_at", "held_decisions", ["account_id", "created_at"])
    op.create_index(
        "uq_held_decisions_open",
        "held_decisions",
        ["approval_id", "account_id"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_table(
        "approval_snoozes",
        sa.Column("approval_id", sa.String(30), nullable=False),
        sa.Column("account_id", sa.String(36), nullable=False),
        sa.Column("until", Instant, nullable=False),
        _belongs_to_account("approval_snoozes"),
        sa.PrimaryKeyConstraint("approval_id", "account_id", name=op.f("pk_approval_snoozes")),
    )
    op.create_index(op.f("ix_approval_snoozes_until"), "approval_snoozes", ["until"])
