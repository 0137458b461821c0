"""Mails are kept until they are delivered, or read in the outbox."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.create_table(
        "mails",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("to_address", sa.String(250), nullable=False),
        sa.Column("template", sa.String(60), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("html", sa.Text(), nullable=False),
        sa.Column("sender_name", sa.String(200), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant),
        sa.Column("sent_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_mails")),
    )
    op.create_index(op.f("ix_mails_created_at"), "mails", ["created_at"])
    op.create_index("ix_mails_app_id_created_at_id", "mails", ["app_id", "created_at", "id"])
