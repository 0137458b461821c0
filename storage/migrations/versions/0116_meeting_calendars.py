"""Calendars by which bots are sent into meetings, and the events of these."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0116"
down_revision = "0114"


def upgrade() -> None:
    op.create_table(
        "meeting_calendars",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("app_user_id", sa.String(36), nullable=False),
        sa.Column("toolkit", sa.String(80), nullable=False),
        sa.Column("account", sa.String(300)),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("title_contains", sa.String(200)),
        sa.Column("unanswered", sa.Boolean, nullable=False),
        sa.Column("recording", sa.String(10)),
        sa.Column("transcript", sa.Boolean, nullable=False),
        sa.Column("bot_name", sa.String(64), nullable=False),
        sa.Column("most_a_day", sa.Integer, nullable=False),
        sa.Column("maker", Json, nullable=False),
        sa.Column("since", Instant, nullable=False),
        sa.Column("next_at", Instant, nullable=False),
        sa.Column("read_at", Instant),
        sa.Column("failure", sa.Text),
        sa.Column("failed_at", Instant),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_meeting_calendars")),
    )
    op.create_index(
        "uq_meeting_calendars_user",
        "meeting_calendars",
        ["organisation_id", "app_id", "app_user_id", "toolkit"],
        unique=True,
    )
    is_on = sa.text("enabled")
    op.create_index(
        "ix_meeting_calendars_next", "meeting_calendars", ["next_at"], sqlite_where=is_on, postgresql_where=is_on
    )
    op.create_table(
        "meeting_calendar_events",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("calendar_id", sa.String(36), nullable=False),
        sa.Column("event_key", sa.String(64), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("meeting_url", sa.Text, nullable=False),
        sa.Column("starts_at", Instant, nullable=False),
        sa.Column("ends_at", Instant, nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("bot_id", sa.String(36)),
        sa.Column("sent_at", Instant),
        sa.Column("message", sa.Text),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_meeting_calendar_events")),
    )
    op.create_index(
        "uq_meeting_calendar_events_event",
        "meeting_calendar_events",
        ["organisation_id", "app_id", "event_key", "starts_at"],
        unique=True,
    )
    op.create_index("ix_meeting_calendar_events_calendar", "meeting_calendar_events", ["calendar_id", "ends_at"])
    op.create_index(
        "ix_meeting_calendar_events_owner", "meeting_calendar_events", ["organisation_id", "app_id", "starts_at"]
    )
    op.create_index("ix_meeting_calendar_events_ends_at", "meeting_calendar_events", ["ends_at"])
