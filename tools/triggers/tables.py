"""The rows of triggers and their deliveries, in the database of the app's region."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text, UniqueConstraint, and_

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("triggers")

_ID = String(36)

triggers_table = Table(
    "triggers",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("name", String(100), nullable=False),
    # The name of the event (tools/core/app_events.py).
    Column("event", String(100), nullable=False),
    # The table whose rows it waits for; null unless the event is one of rows.
    Column("table_name", String(100)),
    # What begins so is what it waits for, such as keys; null unless its event asks for that.
    Column("prefix", String(512)),
    # A rule of JSON-Logic; null if each event fits.
    Column("filter", Json),
    Column("schedule", String(200)),
    Column("time_zone", String(60), nullable=False),
    Column("catch_up", Boolean, nullable=False),
    # When the schedule is due next; null without one, and while it is paused.
    Column("next_at", Instant),
    # What it starts: `{agent, input}` or `{webhook}`; or `{function, function_id, kind}`, with `prefix` and `types` of
    # uploads, where a function of the app has it.
    Column("action", Json, nullable=False),
    # Signs the webhook.
    Column("secret", Sealed),
    # With whose rights it acts, in the form of tools/core/auth/proposers.py.
    Column("maker", Json, nullable=False),
    # `active` or `paused`, and why it was paused.
    Column("status", String(10), nullable=False),
    Column("reason", Text),
    # What its owner should know, such as changes that were lost.
    Column("remark", Text),
    # How many deliveries have failed since the last that did not.
    Column("failures", Integer, nullable=False),
    Column("tells_failures", Boolean, nullable=False),
    # Only what happens from then on counts: the moment, and the number of the last change of rows.
    Column("since", Instant, nullable=False),
    Column("since_change", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("app_id", "name"),
)
_triggers = triggers_table.c
DUE = and_(_triggers.next_at.is_not(None), _triggers.status == "active")
Index("ix_triggers_due", _triggers.next_at, sqlite_where=DUE, postgresql_where=DUE)

deliveries = Table(
    "trigger_deliveries",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("trigger_id", _ID, nullable=False),
    Column("event_id", String(100), nullable=False),
    Column("event", String(100), nullable=False),
    # What the event is about; those of one subject have an order.
    Column("subject", String(400), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # The event as receivers get it.
    Column("payload", Json, nullable=False),
    # How many triggers lie before it, where one has caused the next.
    Column("depth", Integer, nullable=False),
    Column("tainted", Boolean, nullable=False),
    # `pending`, `delivered`, `failed` or `skipped`.
    Column("status", String(10), nullable=False),
    Column("attempts", Integer, nullable=False),
    # How often a person had it sent again: each time is another run.
    Column("rounds", Integer, nullable=False),
    # Of the last attempt: why it failed, the run that it started, or the status of the answer.
    Column("error", Text),
    Column("run_id", _ID),
    Column("answer_status", Integer),
    Column("created_at", Instant, nullable=False),
    Column("delivered_at", Instant),
    Column("next_attempt_at", Instant),
    UniqueConstraint("app_id", "trigger_id", "event_id"),
)
_deliveries = deliveries.c
Index("ix_trigger_deliveries_trigger", _deliveries.app_id, _deliveries.trigger_id, _deliveries.created_at)
Index("ix_trigger_deliveries_created_at", _deliveries.created_at)
PENDING = _deliveries.status == "pending"
Index(
    "ix_trigger_deliveries_pending",
    _deliveries.app_id,
    _deliveries.next_attempt_at,
    sqlite_where=PENDING,
    postgresql_where=PENDING,
)

positions = Table(
    "trigger_positions",
    metadata,
    Column("app_id", _ID, primary_key=True),
    # The number of the last change of rows that was taken.
    Column("change", BigInteger, nullable=False),
    # The last number of an event that has none of its own.
    Column("sequence", BigInteger, nullable=False),
)

APP_TABLES = (
    AppTable(triggers_table, counted_as="triggers"),
    AppTable(deliveries),
    AppTable(positions),
)
