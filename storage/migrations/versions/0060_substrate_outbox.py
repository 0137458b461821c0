"""Executed actions are told to targets, and changes to those who follow a stream."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Sealed

revision = "0060"
down_revision = "0059"


def upgrade() -> None:
    _create_table(
        "outbox_targets",
        sa.Column("capability", sa.String(60), nullable=False),
        sa.Column("webhook_url", sa.String(2000), nullable=False),
        sa.Column("signing_secret", Sealed, nullable=False),
        sa.Column("source_app_id", sa.String(36)),
    )
    table = "substrate_outbox_targets"
    op.create_index(f"uq_{table}_capability", table, ["organisation_id", "capability"], unique=True)
    _create_table(
        "outbox",
        sa.Column("action_id", sa.String(64), nullable=False),
        sa.Column("capability", sa.String(60), nullable=False),
        sa.Column("target", sa.String(2000), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("delivery_id", sa.String(36), nullable=False),
        sa.Column("last_status", sa.Integer()),
        sa.Column("last_error", sa.String(500)),
        sa.Column("next_attempt_at", Instant),
        sa.Column("delivered_at", Instant),
    )
    op.create_index("ix_substrate_outbox_created_at", "substrate_outbox", ["organisation_id", "created_at"])
    op.create_index("ix_substrate_outbox_state", "substrate_outbox", ["organisation_id", "state", "created_at"])
    table = "substrate_stream_tickets"
    op.create_table(
        table,
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(36), nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        _belongs_to_organisation(table),
        sa.PrimaryKeyConstraint("organisation_id", "digest", name=op.f(f"pk_{table}")),
    )
    op.create_index(f"ix_{table}_digest", table, ["digest"])


def _create_table(name: str, *columns: sa.Column[object]) -> None:
    name = f"substrate_{name}"
    op.create_table(
        name,
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        *columns,
        _belongs_to_organisation(name),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f(f"pk_{name}")),
    )


def _belongs_to_organisation(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["organisation_id"],
        ["organisations.id"],
        name=op.f(f"fk_{table}_organisation_id_organisations"),
        ondelete="CASCADE",
    )
