"""The rows of an app's users, in the database of the app's region."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text, UniqueConstraint, false, true

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("users")

_ID = String(36)

users = Table(
    "users",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    # Null for an anonymous user, and only for one.
    Column("email", String(250)),
    Column("email_verified", Boolean, nullable=False, server_default=false()),
    Column("display_name", String(200), nullable=False, server_default=""),
    Column("avatar_url", String(2000)),
    # How the user came: `email`, `magic_link`, or the slug of an OAuth provider with what that calls the user.
    Column("provider", String(40), nullable=False),
    Column("provider_uid", String(250)),
    Column("password_hash", String(300)),
    Column("role", String(60), nullable=False, server_default="user"),
    Column("banned_at", Instant),
    Column("ban_reason", Text),
    Column("created_at", Instant, nullable=False),
    Column("last_sign_in_at", Instant),
    UniqueConstraint("app_id", "email"),
    Index("ix_users_app_id_created_at_id", "app_id", "created_at", "id"),
    Index("ix_users_app_id_last_sign_in_at", "app_id", "last_sign_in_at"),
)

user_identities = Table(
    "user_identities",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("provider", String(40), primary_key=True),
    # The provider's id of the user.
    Column("provider_uid", String(250), primary_key=True),
    Column("user_id", _ID, nullable=False),
    Column("email", String(250)),
    Column("created_at", Instant, nullable=False),
    Index("ix_user_identities_app_id_user_id", "app_id", "user_id"),
)

user_sessions = Table(
    "user_sessions",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("user_id", _ID, nullable=False),
    # How often its refresh token was exchanged: only the token of this number is good, and for a moment the one before.
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("refreshed_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("created_at", Instant, nullable=False),
    Column("method", String(40), nullable=False),
    Column("ip_address", String(60)),
    Column("user_agent", String(300)),
    # The MCP client that the user let in; null for a session that the user has begun.
    Column("client_id", Text),
    Column("client_name", String(100)),
    Index("ix_user_sessions_app_id_user_id", "app_id", "user_id"),
)

user_codes = Table(
    "user_codes",
    metadata,
    Column("app_id", _ID, primary_key=True),
    # One of each purpose for each address: a newer code takes the place of the older.
    Column("email", String(250), primary_key=True),
    Column("purpose", String(20), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("used_at", Instant),
    # A link in the mail proves what the code proves, and leads there afterwards.
    Column("link_digest", String(64)),
    Column("redirect_to", Text),
    Index("ix_user_codes_app_id_link_digest", "app_id", "link_digest"),
)

user_invitations = Table(
    "user_invitations",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("email", String(250), nullable=False),
    Column("role", String(60), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("accepted_at", Instant),
    UniqueConstraint("app_id", "email"),
)

user_mcp_codes = Table(
    "user_mcp_codes",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("user_id", _ID, nullable=False),
    Column("client_id", Text, nullable=False),
    Column("client_name", String(100), nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("redirect_given", Boolean, nullable=False),
    Column("code_challenge", String(43), nullable=False),
    # The session that the code is exchanged for, once.
    Column("session_id", _ID, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("used_at", Instant),
    Index("ix_user_mcp_codes_app_id_user_id", "app_id", "user_id"),
)

user_totp = Table(
    "user_totp",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("user_id", _ID, primary_key=True),
    Column("secret", Sealed, nullable=False),
    # Null until the user has shown a code of it.
    Column("confirmed_at", Instant),
    # The newest period of which a code was taken: a code of it or of one before is refused.
    Column("last_period", BigInteger),
    # Wrong codes since `wrong_since`.
    Column("wrong_tries", Integer, nullable=False, server_default="0"),
    Column("wrong_since", Instant),
    Column("created_at", Instant, nullable=False),
)

user_recovery_codes = Table(
    "user_recovery_codes",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("user_id", _ID, primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("used_at", Instant),
)

user_passkeys = Table(
    "user_passkeys",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("user_id", _ID, nullable=False),
    # In base64url, as browsers write it.
    Column("credential_id", String(1400), nullable=False),
    Column("public_key", Text, nullable=False),
    # The host name that it belongs to: browsers offer it on pages of that name only.
    Column("rp_id", String(253), nullable=False),
    Column("sign_count", BigInteger, nullable=False),
    Column("transports", Json, nullable=False),
    Column("backed_up", Boolean, nullable=False),
    Column("name", String(100), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("last_used_at", Instant),
    UniqueConstraint("app_id", "credential_id"),
    Index("ix_user_passkeys_app_id_user_id", "app_id", "user_id"),
)

# Sign-ins that wait for the second factor, and those by passkey that are done: each is good once.
user_challenges = Table(
    "user_challenges",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("user_id", _ID, nullable=False),
    # How the user has shown the first factor, and what the sign-in is called.
    Column("method", String(40), nullable=False),
    Column("event", String(40), nullable=False),
    Column("is_new", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("used_at", Instant),
    Index("ix_user_challenges_app_id_user_id", "app_id", "user_id"),
)

user_providers = Table(
    "user_providers",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("provider", String(40), nullable=False),
    Column("client_id", String(500), nullable=False),
    Column("client_secret", Sealed, nullable=False),
    Column("redirect_uris", Json, nullable=False),
    Column("scopes", Json, nullable=False),
    # Null for a built-in provider, whose addresses are known.
    Column("authorization_url", String(2000)),
    Column("token_url", String(2000)),
    Column("userinfo_url", String(2000)),
    # There may be a private key in it.
    Column("provider_metadata", Sealed, nullable=False),
    Column("enabled", Boolean, nullable=False, server_default=true()),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("app_id", "provider"),
)

user_hook_calls = Table(
    "user_hook_calls",
    metadata,
    Column("app_id", _ID, primary_key=True),
    # The event's, so that one is written down once.
    Column("id", _ID, primary_key=True),
    Column("event", String(40), nullable=False),
    Column("payload", Json, nullable=False),
    Column("status", String(20), nullable=False),
    Column("created_at", Instant, nullable=False, index=True),
    Index("ix_user_hook_calls_app_id_created_at", "app_id", "created_at"),
)

user_settings = Table(
    "user_settings",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("anonymous", Boolean, nullable=False, server_default=false()),
    # After how many days without use an anonymous user is deleted; null: never.
    Column("anonymous_days", Integer),
    Column("invite_only", Boolean, nullable=False, server_default=false()),
    # `optional`: of those who have set one up; `required`: of everybody with an address.
    Column("second_factor", String(10), nullable=False, server_default="optional"),
    # How the page looks on which users sign in.
    Column("logo_url", String(2000)),
    Column("colour", String(7)),
)

APP_TABLES = tuple(
    AppTable(table, counted_as="users" if table is users else None)
    for table in (
        user_settings,
        user_providers,
        user_invitations,
        users,
        user_identities,
        user_sessions,
        user_codes,
        user_mcp_codes,
        user_totp,
        user_recovery_codes,
        user_passkeys,
        user_challenges,
        user_hook_calls,
    )
)
