"""The table of sessions: their refresh tokens."""

from sqlalchemy import Column, ForeignKey, String, Table

from baobab.storage.sql.tables import Instant, metadata

refresh_tokens = Table(
    "refresh_tokens",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("family", String(36), nullable=False, index=True),
    Column("account_id", String(36), ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("used_at", Instant),
    Column("revoked_at", Instant),
)
