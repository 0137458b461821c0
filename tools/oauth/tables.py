"""The tables of OAuth: clients, codes, grants and refresh tokens."""

from sqlalchemy import Boolean, Column, ForeignKey, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, metadata

oauth_clients = Table(
    "oauth_clients",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("redirect_uris", Json, nullable=False),
    Column("created_at", Instant, nullable=False, index=True),
    # When a person last decided about the client.
    Column("last_used_at", Instant),
)

oauth_codes = Table(
    "oauth_codes",
    metadata,
    Column("digest", String(64), primary_key=True),
    # No foreign key: a client with a metadata document has no row.
    Column("client_id", Text, nullable=False),
    Column("client_name", String(100), nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("redirect_given", Boolean, nullable=False),
    Column("code_challenge", String(43), nullable=False),
    Column("resource", Text),
    Column("scopes", Json, nullable=False),
    Column("account_id", String(36), ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column(
        "organisation_id", String(36), ForeignKey("organisations.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    # The limits of the key that the code is exchanged for.
    Column("read_only", Boolean, nullable=False),
    Column("approval", String(20), nullable=False),
    Column("toolsets", Json),
    Column("only_app_id", String(36)),
    Column("ends_at", Instant),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("used_at", Instant),
    # The key that the code was exchanged for.
    Column("key_id", String(36)),
)

oauth_grants = Table(
    "oauth_grants",
    metadata,
    Column("key_id", String(36), ForeignKey("api_keys.id", ondelete="CASCADE"), primary_key=True),
    Column("client_id", Text, nullable=False),
    Column("client_name", String(100), nullable=False),
    Column("redirect_host", String(300), nullable=False),
    Column("scope", String(100), nullable=False),
    Column("created_at", Instant, nullable=False),
)

oauth_refresh_tokens = Table(
    "oauth_refresh_tokens",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("key_id", String(36), ForeignKey("oauth_grants.key_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Instant, nullable=False, index=True),
    Column("used_at", Instant),
    # The tokens that it was exchanged for, for a client that sends it again at once; the context is the digest.
    Column("successor", Text),
)
