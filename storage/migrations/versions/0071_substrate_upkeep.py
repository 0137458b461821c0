"""Consolidations are proposed once a day; actions name the approved call behind them; links have an index."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0071"
down_revision = "0070"


def upgrade() -> None:
    op.add_column(
        "substrate_settings",
        sa.Column("propose_consolidations", sa.Boolean(), nullable=False, server_default=sa.true()),
    )
    op.add_column("substrate_settings", sa.Column("consolidated_at", Instant))
    op.add_column("substrate_action_ledger", sa.Column("approval_id", sa.String(30)))
    op.create_index(op.f("ix_apps_substrate_organization_id"), "apps", ["substrate_organization_id"])
