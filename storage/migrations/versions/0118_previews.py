"""Deployments of sites say whether they go live."""

import sqlalchemy as sa
from alembic import op

revision = "0118"
down_revision = "0116"


def upgrade() -> None:
    op.add_column("site_deployments", sa.Column("goes_live", sa.Boolean(), nullable=False, server_default=sa.true()))
