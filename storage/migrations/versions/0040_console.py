"""The console has sessions, and one-time links that sign in."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(36), nullable=False),
        sa.Column("key_id", sa.String(36)),
        sa.Column("caller", Json, nullable=False),
        sa.Column("password", sa.String(64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("last_seen_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("user_agent", sa.String(300), nullable=False),
        sa.Column("ip", sa.String(64), nullable=False),
        sa.Column("revoked_at", Instant),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_sessions")),
        sa.UniqueConstraint("digest", name=op.f("uq_console_sessions_digest")),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
            name=op.f("fk_console_sessions_account_id_accounts"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_console_sessions_account_id"), "console_sessions", ["account_id"])
    op.create_table(
        "console_links",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(36), nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("used_at", Instant),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_console_links")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_console_links_account_id_accounts"), ondelete="CASCADE"
        ),
    )
    op.create_index(op.f("ix_console_links_account_id"), "console_links", ["account_id"])
