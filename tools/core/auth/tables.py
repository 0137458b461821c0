"""The rows that decide who may do what: accounts, organisations, keys and apps. Every other row hangs on these.

Invitations are among them because those that a key has made go when it is revoked.
"""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint, false, true

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

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
    # When somebody last signed in to the account, or used a session of it; by the minute.
    Column("last_seen_at", Instant),
    # Sessions that began before this have ended, wherever they are kept.
    Column("signed_out_at", Instant),
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
    # The only apps about whose calls an approver decides; null for all.
    Column("app_ids", Json),
    Column("created_at", Instant, nullable=False),
)

invitations = Table(
    "invitations",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("organisation_id", _ID, ForeignKey("organisations.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("email", String(250), nullable=False),
    Column("role", String(20), nullable=False),
    Column("app_ids", Json),
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
    # What people read in its place; null for the name itself.
    Column("display_name", String(100)),
    Column("subdomain", String(63), nullable=False, unique=True),
    Column("region", String(40), nullable=False),
    Column("access_mode", String(20), nullable=False, server_default="public"),
    Column("visibility", String(20), nullable=False, server_default="private"),
    Column("listed", Boolean, nullable=False, server_default=true()),
    Column("allowed_origins", Json, nullable=False),
    Column("storage_config", Json, nullable=False),
    Column("jwt_config", Json, nullable=False),
    Column("auth_hook_function", String(100)),
    # The tools that the app's users may call over MCP, by name.
    Column("user_tools", Json, nullable=False, server_default="[]"),
    Column("paused_at", Instant),
    Column("paused_reason", Text),
    Column("provisioning_status", String(20), nullable=False, server_default="ready"),
    Column("provisioning_error", Text),
    Column("template_source_app_id", String(36)),
    Column("repo_latest_snapshot", String(64)),
    Column("fork_count", Integer, nullable=False, server_default="0"),
    Column("substrate_organization_id", _ID, index=True),
    # Whether the app's users become entities of that organisation's substrate.
    Column("substrate_autopropagate_users", Boolean, nullable=False, server_default=false()),
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
    Index("ix_apps_region_id", "region", "id"),
)

custom_domains = Table(
    "custom_domains",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("app_id", String(36), ForeignKey("apps.id", ondelete="CASCADE"), nullable=False),
    # In lower case, as ASCII.
    Column("hostname", String(253), nullable=False, index=True),
    # The same while the app holds the name, which one app of the installation does at most; null before and after.
    Column("held_name", String(253), unique=True),
    Column("method", String(4), nullable=False),
    # What its TXT record must say: another one each time that an app adds a name.
    Column("token", String(60), nullable=False),
    Column("status", String(10), nullable=False),
    # Sentences: what was wrong at the last check.
    Column("problems", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    # Since when it waits to be verified.
    Column("asked_at", Instant, nullable=False),
    Column("checked_at", Instant),
    Column("verified_at", Instant),
    # Since when no resolver has seen the record of a name that the app holds.
    Column("lost_at", Instant),
    # Null: not before somebody asks for it.
    Column("next_check_at", Instant, index=True),
    UniqueConstraint("app_id", "hostname"),
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
    # The limits of the key beside its scopes. Null: every toolset.
    Column("toolsets", Json),
    Column("read_only", Boolean, nullable=False, server_default=false()),
    Column("approval", String(20), nullable=False, server_default="none"),
    # By the names of tools `always` or `never`, whatever `approval` says; null is the same as none of them.
    Column("asks", Json),
    Column("created_at", Instant, nullable=False),
    Column("last_used_at", Instant),
    Column("revoked_at", Instant),
    # The only app that it opens. No foreign key: a key of a deleted app opens none.
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
