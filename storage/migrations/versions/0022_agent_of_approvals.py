"""Approvals say which agent's run asks."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("agent", sa.String(100)))
