"""The rows of functions: what was deployed, what was called, and what calls remember."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, String, Table, Text, UniqueConstraint

from baobab.runtime.functions.tables import functions_table, versions
from baobab.storage.sql.tables import Instant, Json, Sealed, metadata
from baobab.tools.core import AppTable, Freezes

__all__ = [
    "APP_TABLES",
    "FREEZES",
    "app_env",
    "claims",
    "functions_table",
    "invocations",
    "steps",
    "usage",
    "versions",
    "webhook_deliveries",
]

FREEZES = Freezes("functions")

_ID = String(36)

app_env = Table(
    "function_app_env",
    metadata,
    Column("app_id", _ID, primary_key=True),
    # The environment of all functions of the app, as JSON.
    Column("env", Sealed, nullable=False),
    Column("updated_at", Instant, nullable=False),
)

invocations = Table(
    "function_invocations",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("function_id", _ID, nullable=False),
    Column("name", String(100), nullable=False),
    Column("version", Integer, nullable=False),
    # `http`, `cron`, `storage_upload`, `webhook`, `websocket`, `auth_hook`, `invoke`, `tool` or `test`.
    Column("trigger", String(20), nullable=False),
    Column("method", String(10), nullable=False),
    Column("path", String(700), nullable=False),
    Column("status_code", Integer, nullable=False),
    Column("duration_ms", Float, nullable=False),
    Column("memory_mb", Float),
    Column("error", Text),
    Column("stack", Text),
    Column("shutdown_reason", String(40)),
    Column("console_logs", Json, nullable=False),
    Column("request_id", String(80), nullable=False),
    Column("started_at", Instant, nullable=False),
    # When it had ended with all that it did: whoever follows the log reads on from there.
    Column("logged_at", Instant, nullable=False),
)
_invocations = invocations.c
Index("ix_function_invocations_function", _invocations.app_id, _invocations.function_id, _invocations.logged_at)
Index("ix_function_invocations_logged_at", _invocations.logged_at)

usage = Table(
    "function_usage",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("function_id", _ID, primary_key=True),
    # The hour, in UTC, as `2027-01-15T08`; or `total`.
    Column("hour", String(13), primary_key=True),
    Column("invocations", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("duration_ms", Float, nullable=False),
    Column("last_at", Instant, nullable=False),
    Column("last_status", Integer, nullable=False),
)

webhook_deliveries = Table(
    "function_webhooks",
    metadata,
    Column("app_id", _ID, primary_key=True),
    # Also the id of the invocation, which `ctx.request.id` says.
    Column("id", _ID, primary_key=True),
    Column("function_id", _ID, nullable=False),
    # What makes two deliveries the same one.
    Column("digest", String(64), nullable=False),
    Column("provider", String(20), nullable=False),
    # The request as it came, `{url, headers, body}`, without credentials; the body in base64.
    Column("request", Json, nullable=False),
    # `running`, `completed` or `failed`.
    Column("status", String(12), nullable=False),
    Column("attempts", Integer, nullable=False),
    # While it runs, when whoever runs it is given up.
    Column("runs_until", Instant),
    # What the function answered, `{status, headers, body}`, the body in base64; that is null if it was too long.
    # While `running`: the sender has its answer, and what `waitUntil` got is not done yet.
    Column("answer", Json),
    Column("error", Text),
    Column("duplicates", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("ended_at", Instant),
    UniqueConstraint("app_id", "function_id", "digest"),
)
Index("ix_function_webhooks_created_at", webhook_deliveries.c.created_at)

claims = Table(
    "function_claims",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("scope", String(255), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("expires_at", Instant),
    Column("created_at", Instant, nullable=False),
)

steps = Table(
    "function_steps",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("invocation_id", _ID, primary_key=True),
    Column("name", String(200), primary_key=True),
    # What the step returned, as `{value}`.
    Column("result", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
)
Index("ix_function_steps_created_at", steps.c.created_at)

APP_TABLES = (
    AppTable(functions_table, counted_as="functions"),
    AppTable(versions),
    AppTable(app_env),
    AppTable(invocations),
    AppTable(usage),
    AppTable(webhook_deliveries),
    AppTable(claims),
    AppTable(steps),
)
