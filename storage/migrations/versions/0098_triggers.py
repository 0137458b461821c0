"""Apps have triggers, and events say who caused them."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json, Sealed

revision = "0098"
down_revision = "0097"


def upgrade() -> None:
    op.add_column("events", sa.Column("origin", Json))
    op.create_table(
        "triggers",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("event", sa.String(100), nullable=False),
        sa.Column("table_name", sa.String(100)),
        sa.Column("filter", Json),
        sa.Column("schedule", sa.String(200)),
        sa.Column("time_zone", sa.String(60), nullable=False),
        sa.Column("catch_up", sa.Boolean(), nullable=False),
        sa.Column("next_at", Instant),
        sa.Column("action", Json, nullable=False),
        sa.Column("secret", Sealed),
        sa.Column("maker", Json, nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("remark", sa.Text()),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("tells_failures", sa.Boolean(), nullable=False),
        sa.Column("since", Instant, nullable=False),
        sa.Column("since_change", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_triggers")),
        sa.UniqueConstraint("app_id", "name", name=op.f("uq_triggers_app_id_name")),
    )
    is_due = sa.text("next_at IS NOT NULL AND status = 'active'")
    op.create_index("ix_triggers_due", "triggers", ["next_at"], sqlite_where=is_due, postgresql_where=is_due)
    op.create_table(
        "trigger_deliveries",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("trigger_id", sa.String(36), nullable=False),
        sa.Column("event_id", sa.String(100), nullable=False),
        sa.Column("event", sa.String(100), nullable=False),
        sa.Column("subject", sa.String(400), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("tainted", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("run_id", sa.String(36)),
        sa.Column("answer_status", sa.Integer()),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("delivered_at", Instant),
        sa.Column("next_attempt_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_trigger_deliveries")),
        sa.UniqueConstraint(
            "app_id", "trigger_id", "event_id", name=op.f("uq_trigger_deliveries_app_id_trigger_id_event_id")
        ),
    )
    op.create_index("ix_trigger_deliveries_trigger", "trigger_deliveries", ["app_id", "trigger_id", "created_at"])
    op.create_index("ix_trigger_deliveries_created_at", "trigger_deliveries", ["created_at"])
    is_pending = sa.text("status = 'pending'")
    op.create_index(
        "ix_trigger_deliveries_pending",
        "trigger_deliveries",
        ["app_id", "next_attempt_at"],
        sqlite_where=is_pending,
        postgresql_where=is_pending,
    )
    op.create_table(
        "trigger_positions",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_trigger_positions")),
    )
