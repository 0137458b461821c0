"""Users of apps sign in with OAuth providers."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0037"
down_revision = "0036"

_ID = sa.String(36)


def upgrade() -> None:
    op.create_table(
        "user_providers",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("provider", sa.String(40), nullable=False),
        sa.Column("client_id", sa.String(500), nullable=False),
        sa.Column("client_secret", sa.Text(), nullable=False),
        sa.Column("redirect_uris", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("authorization_url", sa.String(2000)),
        sa.Column("token_url", sa.String(2000)),
        sa.Column("userinfo_url", sa.String(2000)),
        sa.Column("provider_metadata", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_user_providers")),
        sa.UniqueConstraint("app_id", "provider", name=op.f("uq_user_providers_app_id_provider")),
    )
