"""The rows that decide who may do what: accounts, organisations, keys and apps. Every other row hangs on these."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint, false, true

from baobab.storage.tables import Instant, Json, Sealed, metadata

_ID = String(36)

accounts = Table(
    "accounts",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("email", String(250), nullable=False, unique=True),
    Column("name", String(200), nullable=False),
    Column("password_hash", String(200)),
    Column("email_verified", Boolean, nullable=False, server_default=false()),
    Column("created_at", Instant, nullable=False),
)

refresh_tokens = Table(
    "refresh_tokens",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("family", _ID, nullable=False, index=True),
    Column("account_id", _ID, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("used_at", Instant),
    Column("revoked_at", Instant),
)

organisations = Table(
    "organisations",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("personal", Boolean, nullable=False),
    Column("plan", String(40), nullable=False),
    Column("created_at", Instant, nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("organisation_id", _ID, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    Column("account_id", _ID, ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("role", String(20), nullable=False),
    Column("created_at", Instant, nullable=False),
)

invitations = Table(
    "invitations",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("organisation_id", _ID, ForeignKey("organisations.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("email", String(250), nullable=False),
    Column("role", String(20), nullable=False),
    # Who invites, and with which key; null for a person who was signed in.
    Column("account_id", _ID),
    Column("key_id", _ID),
    Column("token_digest", String(64), nullable=False, unique=True),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("accepted_at", Instant),
)

apps = Table(
    "apps",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", _ID, ForeignKey("organisations.id"), nullable=False),
    Column("name", String(63), nullable=False),
    Column("subdomain", String(63), nullable=False, unique=True),
    Column("region", String(40), nullable=False),
    Column("access_mode", String(20), nullable=False, server_default="public"),
    Column("visibility", String(20), nullable=False, server_default="private"),
    Column("listed", Boolean, nullable=False, server_default=true()),
    Column("allowed_origins", Json, nullable=False),
    Column("storage_config", Json, nullable=False),
    Column("jwt_config", Json, nullable=False),
    Column("auth_hook_function", String(100)),
    Column("paused_at", Instant),
    Column("paused_reason", Text),
    Column("provisioning_status", String(20), nullable=False, server_default="ready"),
    Column("provisioning_error", Text),
    Column("template_source_app_id", String(36)),
    Column("repo_latest_snapshot", String(64)),
    Column("fork_count", Integer, nullable=False, server_default="0"),
    Column("substrate_organization_id", _ID),
    Column("anon_key", String(60), nullable=False, unique=True),
    Column("function_key", Sealed, nullable=False),
    Column("function_key_digest", String(64), nullable=False, unique=True),
    # To which account it was shown, and by which key that account asked; both null: to nobody.
    Column("function_key_account_id", _ID),
    Column("function_key_key_id", _ID),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("organisation_id", "name"),
    Index("ix_apps_organisation_id_created_at_id", "organisation_id", "created_at", "id"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("organisation_id", _ID, ForeignKey("organisations.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("account_id", _ID, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    # The key that made it; null for a person who was signed in.
    Column("made_by", _ID, index=True),
    Column("app_id", String(36), ForeignKey("apps.id", ondelete="CASCADE"), index=True),
    Column("name", String(100), nullable=False),
    Column("prefix", String(12), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("scopes", Json, nullable=False),
    # What it is held to beside its scopes: null is every family of tools.
    Column("toolsets", Json),
    Column("read_only", Boolean, nullable=False, server_default=false()),
    Column("approval", String(20), nullable=False, server_default="none"),
    Column("created_at", Instant, nullable=False),
    Column("last_used_at", Instant),
    Column("revoked_at", Instant),
    # The only app that it opens. No foreign key: a key of an app that is gone opens none.
    Column("only_app_id", String(36)),
    # When it ends for good; and until when its present text is good, which an OAuth client exchanges for another.
    Column("ends_at", Instant),
    Column("expires_at", Instant),
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("id", _ID, primary_key=True),
    # `platform`, or the id of the app whose users' tokens it signs.
    Column("owner", String(36), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("algorithm", String(10), nullable=False),
    Column("public_jwk", Json, nullable=False),
    Column("private_jwk", Sealed, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("retired_at", Instant),
    UniqueConstraint("owner", "generation"),
)

audit_logs = Table(
    "audit_logs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("organisation_id", _ID),
    Column("app_id", String(36)),
    Column("category", String(20), nullable=False),
    Column("event_type", String(80), nullable=False),
    Column("action", String(20), nullable=False),
    Column("resource_type", String(60)),
    Column("resource_id", String(200)),
    Column("actor_type", String(20), nullable=False),
    Column("actor_id", String(60)),
    Column("event_data", Json, nullable=False),
    Column("ip_address", String(60)),
    Column("user_agent", String(300)),
    Column("success", Boolean, nullable=False),
    Column("error_message", String(300)),
    Column("correlation_id", String(80)),
    Column("created_at", Instant, nullable=False),
    Index("ix_audit_logs_app_id_created_at", "app_id", "created_at"),
    Index("ix_audit_logs_organisation_id_created_at", "organisation_id", "created_at"),
)
