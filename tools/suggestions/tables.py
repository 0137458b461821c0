"""The table of suggestions."""

from sqlalchemy import Column, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, metadata

table = Table(
    "suggestions",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("category", String(30), nullable=False),
    Column("severity", String(10)),
    Column("description", Text, nullable=False),
    Column("affected_tool", String(128)),
    Column("proposed_solution", Text),
    Column("source", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("agent_context", Json),
    Column("api_key_id", String(36)),
    Column("user_id", String(36), nullable=False),
    Column("app_id", String(36)),
    Column("created_at", Instant, nullable=False),
)
