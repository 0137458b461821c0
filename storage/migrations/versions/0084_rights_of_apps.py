"""Nodes of agents may lend the app's right to a call: who allowed it, and which approvals are of such calls."""

import sqlalchemy as sa
from alembic import op

revision = "0084"
down_revision = "0083"


def upgrade() -> None:
    op.add_column("agents", sa.Column("app_rights", sa.JSON))
    op.add_column("approvals", sa.Column("app_right", sa.JSON))
