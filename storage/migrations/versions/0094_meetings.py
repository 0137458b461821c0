"""Meeting bots: what they were asked to do, what was charged for them, and the events that are told about them."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Sealed

revision = "0094"
down_revision = "0093"


def upgrade() -> None:
    json = sa.JSON(none_as_null=True)
    op.create_table(
        "meeting_bots",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("key_id", sa.String(80)),
        sa.Column("provider", sa.String(20), nullable=False),
        sa.Column("provider_id", sa.String(200)),
        sa.Column("is_asked", sa.Boolean, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("meeting_url", sa.Text, nullable=False),
        sa.Column("bot_name", sa.String(64), nullable=False),
        sa.Column("recording", sa.String(10)),
        sa.Column("transcript", sa.Boolean, nullable=False),
        sa.Column("automatic_leave", json, nullable=False),
        sa.Column("metadata", json, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("sub_code", sa.String(200)),
        sa.Column("refusal", sa.Text),
        sa.Column("changes", json, nullable=False),
        sa.Column("participants", json, nullable=False),
        sa.Column("recording_state", sa.String(10), nullable=False),
        sa.Column("transcript_state", sa.String(10), nullable=False),
        sa.Column("seconds", sa.Integer),
        sa.Column("started_at", Instant),
        sa.Column("completed_at", Instant),
        sa.Column("left_at", Instant),
        sa.Column("left_because", sa.String(40)),
        sa.Column("leases", json, nullable=False),
        sa.Column("passed_on_at", Instant),
        sa.Column("settled_at", Instant),
        sa.Column("worker", sa.String(200)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_meeting_bots")),
    )
    is_unsettled = sa.text("settled_at IS NULL")
    op.create_index(
        "ix_meeting_bots_unsettled",
        "meeting_bots",
        ["created_at"],
        sqlite_where=is_unsettled,
        postgresql_where=is_unsettled,
    )
    op.create_index("ix_meeting_bots_owner", "meeting_bots", ["organisation_id", "app_id", "id"])
    op.create_index("ix_meeting_bots_provider_id", "meeting_bots", ["provider_id"])
    op.create_table(
        "meeting_usage",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("bot_id", sa.String(36), nullable=False),
        sa.Column("dimension", sa.String(20), nullable=False),
        sa.Column("seconds", sa.Integer, nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("charged", sa.BigInteger, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_meeting_usage")),
        sa.UniqueConstraint("bot_id", "dimension", name=op.f("uq_meeting_usage_bot_id_dimension")),
    )
    op.create_index("ix_meeting_usage_owner", "meeting_usage", ["organisation_id", "app_id", "created_at"])
    op.create_table(
        "meeting_settings",
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("forward_url", sa.Text),
        sa.Column("secret", Sealed),
        sa.Column("transcripts", json),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_meeting_settings")),
        sa.UniqueConstraint("organisation_id", "app_id", name=op.f("uq_meeting_settings_organisation_id_app_id")),
    )
    op.create_table(
        "meeting_deliveries",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("bot_id", sa.String(36), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("answer_status", sa.Integer),
        sa.Column("error", sa.Text),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("delivered_at", Instant),
        sa.Column("next_attempt_at", Instant),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_meeting_deliveries")),
        sa.UniqueConstraint("bot_id", "event", name=op.f("uq_meeting_deliveries_bot_id_event")),
    )
    op.create_index("ix_meeting_deliveries_owner", "meeting_deliveries", ["organisation_id", "app_id", "created_at"])
    op.create_index("ix_meeting_deliveries_created_at", "meeting_deliveries", ["created_at"])
