"""The tables of functions and their versions, in the database of the app's region."""

from sqlalchemy import Boolean, Column, Integer, String, Table, Text, UniqueConstraint

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

_ID = String(36)

functions_table = Table(
    "functions",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("name", String(100), nullable=False),
    # The name in small letters while the function is there; its id once it was deleted, so that the name is free again.
    Column("taken_name", String(100), nullable=False),
    Column("description", Text, nullable=False),
    # The number of the version that answers.
    Column("version", Integer, nullable=False),
    # The number of the last version that was deployed.
    Column("last_version", Integer, nullable=False),
    Column("timeout_ms", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    # `[{type, config, enabled}]`, without secrets.
    Column("triggers", Json, nullable=False),
    # The secret of the webhook trigger, and the environment as JSON.
    Column("webhook_secret", Sealed),
    Column("env", Sealed),
    Column("agent_tool", Boolean, nullable=False),
    Column("agent_tool_description", Text),
    Column("agent_tool_mode", String(10), nullable=False),
    Column("agent_tool_exposed_to", String(20), nullable=False),
    Column("allow_service_key_impersonation", Boolean, nullable=False),
    # The hosts that its `fetch` reaches, such as `["api.example.com", "*.example.org"]`; null for every public one.
    Column("allowed_hosts", Json),
    Column("created_at", Instant, nullable=False),
    Column("deployed_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("deleted_at", Instant),
    UniqueConstraint("app_id", "taken_name"),
)

versions = Table(
    "function_versions",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("function_id", _ID, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("language", String(20), nullable=False),
    # What was sent, and what runs: one file in which every import is resolved.
    Column("source", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("input_schema", Json),
    Column("imports", Json, nullable=False),
    Column("message", Text),
    # Who deployed it, by kind and id, as the audit log names actors.
    Column("author", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
)
