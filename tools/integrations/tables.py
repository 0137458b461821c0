"""The rows of integrations, in the database of the app's region: toolkits, connected accounts, and calls."""

from sqlalchemy import Boolean, Column, Index, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("integrations")

_ID = String(36)

toolkits = Table(
    "integration_toolkits",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("toolkit_slug", String(80), nullable=False),
    Column("display_name", String(100), nullable=False),
    Column("enabled", Boolean, nullable=False),
    # The scopes that people are asked for.
    Column("scopes", Json, nullable=False),
    # Which provider has it, and what that calls it.
    Column("provider", String(20), nullable=False),
    Column("reference", String(200)),
    # JSON: the OAuth client of the app's own; null for the provider's.
    Column("credentials", Sealed),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("uq_integration_toolkits_slug", "app_id", "toolkit_slug", unique=True),
)

connections = Table(
    "integration_connections",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("app_user_id", _ID, nullable=False),
    Column("toolkit_slug", String(80), nullable=False),
    # By which its user tells several accounts of one toolkit apart.
    Column("alias", String(60)),
    Column("provider", String(20), nullable=False),
    # `initiated` while its user is at the service, `finishing` while the callback asks it, then `active`, `inactive`
    # (disconnected at the service) or `expired` (must be connected again).
    Column("status", String(20), nullable=False),
    Column("status_reason", Text),
    # The service's id of the account, and what people call it.
    Column("account_id", String(300)),
    Column("account_name", String(300)),
    Column("scopes", Json, nullable=False),
    # The provider's id of the account.
    Column("external_id", String(200)),
    # JSON: the tokens.
    Column("grant", Sealed),
    Column("grant_expires_at", Instant),
    # Who refreshes the tokens now, and until when nobody else does.
    Column("refreshing_by", _ID),
    Column("refreshing_until", Instant),
    # Of `initiated`: SHA-256 of what the browser's cookie holds, and the verifier of PKCE.
    Column("browser_digest", String(64)),
    Column("verifier", Sealed),
    # What calls of the simulator have left behind.
    Column("made", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("connected_at", Instant),
    Column("last_used_at", Instant),
    Index("ix_integration_connections_app_user_id", "app_id", "app_user_id"),
    Index("ix_integration_connections_external_id", "external_id"),
)

calls = Table(
    "integration_calls",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("app_user_id", _ID, nullable=False),
    Column("connection_id", _ID, nullable=False),
    Column("toolkit_slug", String(80), nullable=False),
    Column("tool", String(200), nullable=False),
    # Whose account it was, as its name was then.
    Column("account_name", String(300), nullable=False),
    # `running`, `succeeded`, `failed`, or `unknown` where nobody can say whether the service has done it.
    Column("status", String(20), nullable=False),
    # SHA-256 of the idempotency key and its user; null for a call without one. Then of what was asked.
    Column("key_digest", String(64)),
    Column("request_digest", String(64), nullable=False),
    # JSON: what the service answered, for a day, where there is a key.
    Column("result", Sealed),
    Column("code", String(60)),
    Column("message", Text),
    Column("simulated", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Index("uq_integration_calls_key_digest", "app_id", "key_digest", unique=True),
    Index("ix_integration_calls_created_at", "app_id", "created_at"),
)

APP_TABLES = (AppTable(toolkits), AppTable(connections, counted_as="connections"), AppTable(calls))
