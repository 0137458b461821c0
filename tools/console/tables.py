"""The tables of the console: who is signed in to it, and one-time links that sign in."""

from sqlalchemy import BigInteger, Column, ForeignKey, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, metadata

console_sessions = Table(
    "console_sessions",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("account_id", String(36), ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    # The key that signed in; null for a person. What `caller` says is read with the key's present limits.
    Column("key_id", String(36)),
    Column("caller", Json, nullable=False),
    # A digest of the account's password hash: the session ends when the password changes, however that comes about.
    Column("password", String(64), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("last_seen_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("user_agent", String(300), nullable=False),
    Column("ip", String(64), nullable=False),
    Column("revoked_at", Instant),
)

console_links = Table(
    "console_links",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("account_id", String(36), ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("expires_at", Instant, nullable=False),
    Column("used_at", Instant),
)

console_passkeys = Table(
    "console_passkeys",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("account_id", String(36), ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    # In base64url, as browsers write it.
    Column("credential_id", String(1400), nullable=False, unique=True),
    Column("public_key", Text, nullable=False),
    Column("rp_id", String(253), nullable=False),
    Column("sign_count", BigInteger, nullable=False),
    Column("name", String(100), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("last_used_at", Instant),
)

# Sign-ins by passkey that are done: each answer of a browser is good once.
console_spent_attempts = Table(
    "console_spent_attempts",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("used_at", Instant, nullable=False),
)
