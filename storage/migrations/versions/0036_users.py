"""Apps have users of their own, with sessions and one-time codes."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0036"
down_revision = "0034"

_ID = sa.String(36)


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("email", sa.String(250), nullable=False),
        sa.Column("email_verified", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("display_name", sa.String(200), nullable=False, server_default=""),
        sa.Column("avatar_url", sa.String(2000)),
        sa.Column("provider", sa.String(40), nullable=False),
        sa.Column("provider_uid", sa.String(250)),
        sa.Column("password_hash", sa.String(300)),
        sa.Column("role", sa.String(60), nullable=False, server_default="user"),
        sa.Column("banned_at", Instant),
        sa.Column("ban_reason", sa.Text()),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("last_sign_in_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_users")),
        sa.UniqueConstraint("app_id", "email", name=op.f("uq_users_app_id_email")),
    )
    op.create_index("ix_users_app_id_created_at_id", "users", ["app_id", "created_at", "id"])
    op.create_table(
        "user_identities",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("provider", sa.String(40), nullable=False),
        sa.Column("provider_uid", sa.String(250), nullable=False),
        sa.Column("user_id", _ID, nullable=False),
        sa.Column("email", sa.String(250)),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "provider", "provider_uid", name=op.f("pk_user_identities")),
    )
    op.create_index("ix_user_identities_app_id_user_id", "user_identities", ["app_id", "user_id"])
    op.create_table(
        "user_sessions",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("user_id", _ID, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("refreshed_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("method", sa.String(40), nullable=False),
        sa.Column("ip_address", sa.String(60)),
        sa.Column("user_agent", sa.String(300)),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_user_sessions")),
    )
    op.create_index(op.f("ix_user_sessions_expires_at"), "user_sessions", ["expires_at"])
    op.create_index("ix_user_sessions_app_id_user_id", "user_sessions", ["app_id", "user_id"])
    op.create_table(
        "user_codes",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("email", sa.String(250), nullable=False),
        sa.Column("purpose", sa.String(20), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("used_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "email", "purpose", name=op.f("pk_user_codes")),
    )
    op.create_index(op.f("ix_user_codes_expires_at"), "user_codes", ["expires_at"])
