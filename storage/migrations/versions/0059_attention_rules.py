"""Attention rules propose actions on a schedule."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0059"
down_revision = "0058"


def upgrade() -> None:
    _create_table(
        "attention_rules",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("trigger_cron", sa.String(200), nullable=False),
        sa.Column("condition_mode", sa.String(30), nullable=False),
        sa.Column("condition", Json, nullable=False),
        sa.Column("action_capability", sa.String(60), nullable=False),
        sa.Column("action_payload_template", Json, nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("max_fires_per_day", sa.Integer()),
        sa.Column("next_fire_at", Instant),
    )
    op.create_index(op.f("ix_substrate_attention_rules_next_fire_at"), "substrate_attention_rules", ["next_fire_at"])
    _create_table(
        "attention_rule_firings",
        sa.Column("rule_id", sa.String(64), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("binding_count", sa.Integer(), nullable=False),
        sa.Column("action_ids", Json, nullable=False),
        sa.Column("action_count", sa.Integer(), nullable=False),
        sa.Column("skip_reason", sa.String(1000)),
        sa.Column("fired_at", Instant, nullable=False),
    )
    table = "substrate_attention_rule_firings"
    op.create_index(f"ix_{table}_fired_at", table, ["organisation_id", "rule_id", "fired_at"])
    op.create_index(f"ix_{table}_created_at", table, ["created_at"])


def _create_table(name: str, *columns: sa.Column[object]) -> None:
    name = f"substrate_{name}"
    op.create_table(
        name,
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        *columns,
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f(f"fk_{name}_organisation_id_organisations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f(f"pk_{name}")),
    )
