"""Tokens of OAuth clients end: their keys have a term, and refresh tokens that are good for one use."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("expires_at", Instant))
    op.create_table(
        "oauth_grants",
        sa.Column("key_id", sa.String(36), sa.ForeignKey("api_keys.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("client_name", sa.String(100), nullable=False),
        sa.Column("redirect_host", sa.String(300), nullable=False),
        sa.Column("scope", sa.String(100), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
    )
    op.create_table(
        "oauth_refresh_tokens",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("key_id", sa.String(36), sa.ForeignKey("oauth_grants.key_id", ondelete="CASCADE"), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("used_at", Instant),
        sa.Column("successor", sa.Text),
    )
    op.create_index("ix_oauth_refresh_tokens_key_id", "oauth_refresh_tokens", ["key_id"])
    op.create_index("ix_oauth_refresh_tokens_created_at", "oauth_refresh_tokens", ["created_at"])
