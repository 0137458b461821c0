"""The tables of meeting bots, in the home database. Money is integer nano-dollars.

Bots belong to an organisation, and may name one of its apps. `app_id` is empty for those of the gateway.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
)

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

meeting_bots = Table(
    "meeting_bots",
    metadata,
    Column("id", String(36), primary_key=True),
    # The organisation that pays.
    Column("organisation_id", String(36), nullable=False),
    Column("app_id", String(36), nullable=False),
    Column("key_id", String(80)),
    Column("provider", String(20), nullable=False),
    # The provider's id of the bot; null until the provider has accepted it.
    Column("provider_id", String(200)),
    # Whether the provider was asked for it: the answer may have been lost.
    Column("is_asked", Boolean, nullable=False),
    # How many bots were sent before and did not get in for a reason that passes.
    Column("attempt", Integer, nullable=False),
    Column("meeting_url", Text, nullable=False),
    Column("bot_name", String(64), nullable=False),
    # `mp4`, `audio_only`, or null for no recording.
    Column("recording", String(10)),
    Column("transcript", Boolean, nullable=False),
    Column("automatic_leave", Json, nullable=False),
    Column("metadata", Json, nullable=False),
    Column("status", String(20), nullable=False),
    # The provider's code for why the call ended or the bot failed.
    Column("sub_code", String(200)),
    # The provider's own words, where it refused the bot.
    Column("refusal", Text),
    # Every change of its state that was heard of, by derived id.
    Column("changes", Json, nullable=False),
    Column("participants", Json, nullable=False),
    Column("recording_state", String(10), nullable=False),
    Column("transcript_state", String(10), nullable=False),
    Column("seconds", Integer),
    Column("started_at", Instant),
    Column("completed_at", Instant),
    # When it was told to leave the call, and why.
    Column("left_at", Instant),
    Column("left_because", String(40)),
    # By dimension, the reservations of credits: `[{id, amount}, ...]`.
    Column("leases", Json, nullable=False),
    # The run of an agent that has started it: `{run_id, agents}`, whose budgets also pay for a call that goes on.
    Column("spender", Json),
    # When its transcript was passed on as the settings say.
    Column("passed_on_at", Instant),
    # When nothing more will be charged.
    Column("settled_at", Instant),
    # The durable job that follows it.
    Column("worker", String(200)),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
)
_bots = meeting_bots.c
UNSETTLED = _bots.settled_at.is_(None)
Index("ix_meeting_bots_unsettled", _bots.created_at, sqlite_where=UNSETTLED, postgresql_where=UNSETTLED)
Index("ix_meeting_bots_owner", _bots.organisation_id, _bots.app_id, _bots.id)
_HAS_PROVIDER_ID = _bots.provider_id.is_not(None)
Index(
    "uq_meeting_bots_provider_id",
    _bots.provider,
    _bots.provider_id,
    unique=True,
    sqlite_where=_HAS_PROVIDER_ID,
    postgresql_where=_HAS_PROVIDER_ID,
)

meeting_usage = Table(
    "meeting_usage",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    Column("app_id", String(36), nullable=False),
    Column("bot_id", String(36), nullable=False),
    # `recording` or `transcription`.
    Column("dimension", String(20), nullable=False),
    Column("seconds", Integer, nullable=False),
    Column("price", BigInteger, nullable=False),
    # The price, or 0 for a simulated call.
    Column("charged", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("bot_id", "dimension"),
)
Index("ix_meeting_usage_owner", meeting_usage.c.organisation_id, meeting_usage.c.app_id, meeting_usage.c.created_at)

meeting_settings = Table(
    "meeting_settings",
    metadata,
    Column("organisation_id", String(36), primary_key=True),
    Column("id", String(36), primary_key=True),
    Column("app_id", String(36), nullable=False),
    # Where events go; null for nowhere.
    Column("forward_url", Text),
    # Signs them; null until there is an address.
    Column("secret", Sealed),
    # What becomes of finished transcripts (outcomes.py); null for nothing.
    Column("transcripts", Json),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("organisation_id", "app_id"),
)

meeting_deliveries = Table(
    "meeting_deliveries",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    Column("app_id", String(36), nullable=False),
    Column("bot_id", String(36), nullable=False),
    Column("event", String(40), nullable=False),
    # The body as it is sent, each time.
    Column("body", Text, nullable=False),
    Column("url", Text, nullable=False),
    # `pending`, `delivered` or `failed`.
    Column("status", String(10), nullable=False),
    Column("attempts", Integer, nullable=False),
    # Of the last attempt: the status of the answer, or why there was none.
    Column("answer_status", Integer),
    Column("error", Text),
    Column("created_at", Instant, nullable=False),
    Column("delivered_at", Instant),
    Column("next_attempt_at", Instant),
    UniqueConstraint("bot_id", "event"),
)
Index(
    "ix_meeting_deliveries_owner",
    meeting_deliveries.c.organisation_id,
    meeting_deliveries.c.app_id,
    meeting_deliveries.c.created_at,
)
Index("ix_meeting_deliveries_created_at", meeting_deliveries.c.created_at)

meeting_calendars = Table(
    "meeting_calendars",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    Column("app_id", String(36), nullable=False),
    # Whose calendar it is, and at which service: a toolkit of integrations.
    Column("app_user_id", String(36), nullable=False),
    Column("toolkit", String(80), nullable=False),
    # Which account, where the user has several of the toolkit.
    Column("account", String(300)),
    Column("enabled", Boolean, nullable=False),
    # Why it was switched off by itself.
    Column("reason", Text),
    # Only events whose title has this; null for all.
    Column("title_contains", String(200)),
    # Whether events that the user has not answered count.
    Column("unanswered", Boolean, nullable=False),
    # As in `meeting_bots`.
    Column("recording", String(10)),
    Column("transcript", Boolean, nullable=False),
    Column("bot_name", String(64), nullable=False),
    Column("most_a_day", Integer, nullable=False),
    # Whose right is used, in the form of tools/core/auth/proposers.py.
    Column("maker", Json, nullable=False),
    # Since when it is on: no bot is sent to what began before.
    Column("since", Instant, nullable=False),
    # When the calendar is read next, when it was read last, and why it could not be.
    Column("next_at", Instant, nullable=False),
    Column("read_at", Instant),
    Column("failure", Text),
    Column("failed_at", Instant),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
)
Index(
    "uq_meeting_calendars_user",
    meeting_calendars.c.organisation_id,
    meeting_calendars.c.app_id,
    meeting_calendars.c.app_user_id,
    meeting_calendars.c.toolkit,
    unique=True,
)
CALENDAR_ON = meeting_calendars.c.enabled
Index("ix_meeting_calendars_next", meeting_calendars.c.next_at, sqlite_where=CALENDAR_ON, postgresql_where=CALENDAR_ON)

meeting_calendar_events = Table(
    "meeting_calendar_events",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    Column("app_id", String(36), nullable=False),
    Column("calendar_id", String(36), nullable=False),
    # SHA-256 of the id that an event has in the calendars of all who are invited.
    Column("event_key", String(64), nullable=False),
    Column("title", Text, nullable=False),
    Column("meeting_url", Text, nullable=False),
    Column("starts_at", Instant, nullable=False),
    Column("ends_at", Instant, nullable=False),
    # `planned`, `sent`, `cancelled`, `failed` or `missed`.
    Column("status", String(10), nullable=False),
    Column("bot_id", String(36)),
    Column("sent_at", Instant),
    # Why it was not sent, or was told to leave.
    Column("message", Text),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
)
_events = meeting_calendar_events.c
# One bot for each event and time at which it begins, however many calendars of the app have it.
Index(
    "uq_meeting_calendar_events_event",
    _events.organisation_id,
    _events.app_id,
    _events.event_key,
    _events.starts_at,
    unique=True,
)
Index("ix_meeting_calendar_events_calendar", _events.calendar_id, _events.ends_at)
Index("ix_meeting_calendar_events_owner", _events.organisation_id, _events.app_id, _events.starts_at)
Index("ix_meeting_calendar_events_ends_at", _events.ends_at)


def is_of(table: Table, organisation_id: str, app_id: str) -> ColumnElement[bool]:
    """Returns the condition for the rows of an app, or with an empty `app_id` for those of the gateway."""
    return and_(table.c.organisation_id == organisation_id, table.c.app_id == app_id)
