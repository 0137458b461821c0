"""The table of tool servers, in the same database as the app's agents."""

from sqlalchemy import Column, String, Table, Text, UniqueConstraint

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

tool_servers = Table(
    "agent_tool_servers",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # Indexed for workers of the version before revision 0081, who find rows by it alone.
    Column("id", String(36), primary_key=True, index=True),
    Column("name", String(100), nullable=False),
    Column("url", Text, nullable=False),
    Column("transport", String(20), nullable=False),
    # The part of the credential that may be shown, and the whole of it.
    Column("auth", Json),
    Column("credential", Sealed),
    Column("tool_acl", Json, nullable=False),
    # Tools by name as their owner accepted them, and as the server last described them; null where it never did.
    Column("accepted", Json, nullable=False),
    Column("seen", Json),
    Column("status", String(10), nullable=False),
    # Why the last health check failed.
    Column("problem", Text),
    Column("last_health", Instant),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("app_id", "name"),
)


def credential_context(id_: str) -> str:
    """Returns the context that a sealed credential is bound to."""
    return f"{tool_servers.name}.credential:{id_}"
