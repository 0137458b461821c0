"""Webhooks of runs are signed, and a run tells how far its webhook has come."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Sealed

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.create_table(
        "agent_webhook_secrets",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("secret", Sealed, nullable=False),
        sa.Column("earlier", Sealed, nullable=True),
        sa.Column("earlier_until", Instant, nullable=True),
        sa.Column("made_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_agent_webhook_secrets")),
    )
    op.add_column("agent_runs", sa.Column("webhook_delivery", sa.JSON(none_as_null=True), nullable=True))
