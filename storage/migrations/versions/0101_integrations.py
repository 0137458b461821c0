"""Apps have integrations: toolkits, their users' accounts there, and calls."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0101"
down_revision = "0098"


def upgrade() -> None:
    op.create_table(
        "integration_toolkits",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("toolkit_slug", sa.String(80), nullable=False),
        sa.Column("display_name", sa.String(100), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("provider", sa.String(20), nullable=False),
        sa.Column("reference", sa.String(200)),
        sa.Column("credentials", sa.Text()),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_integration_toolkits")),
    )
    op.create_index("uq_integration_toolkits_slug", "integration_toolkits", ["app_id", "toolkit_slug"], unique=True)
    op.create_table(
        "integration_connections",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("app_user_id", sa.String(36), nullable=False),
        sa.Column("toolkit_slug", sa.String(80), nullable=False),
        sa.Column("alias", sa.String(60)),
        sa.Column("provider", sa.String(20), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("status_reason", sa.Text()),
        sa.Column("account_id", sa.String(300)),
        sa.Column("account_name", sa.String(300)),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("external_id", sa.String(200)),
        sa.Column("grant", sa.Text()),
        sa.Column("grant_expires_at", Instant),
        sa.Column("refreshing_by", sa.String(36)),
        sa.Column("refreshing_until", Instant),
        sa.Column("browser_digest", sa.String(64)),
        sa.Column("verifier", sa.Text()),
        sa.Column("made", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("connected_at", Instant),
        sa.Column("last_used_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_integration_connections")),
    )
    op.create_index("ix_integration_connections_app_user_id", "integration_connections", ["app_id", "app_user_id"])
    op.create_index("ix_integration_connections_external_id", "integration_connections", ["external_id"])
    op.create_table(
        "integration_calls",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("app_user_id", sa.String(36), nullable=False),
        sa.Column("connection_id", sa.String(36), nullable=False),
        sa.Column("toolkit_slug", sa.String(80), nullable=False),
        sa.Column("tool", sa.String(200), nullable=False),
        sa.Column("account_name", sa.String(300), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("key_digest", sa.String(64)),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("result", sa.Text()),
        sa.Column("code", sa.String(60)),
        sa.Column("message", sa.Text()),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("ended_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_integration_calls")),
    )
    op.create_index("uq_integration_calls_key_digest", "integration_calls", ["app_id", "key_digest"], unique=True)
    op.create_index("ix_integration_calls_created_at", "integration_calls", ["app_id", "created_at"])
