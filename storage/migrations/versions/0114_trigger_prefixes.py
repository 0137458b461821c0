"""Triggers of keys say how the keys begin that they wait for."""

import sqlalchemy as sa
from alembic import op

revision = "0114"
down_revision = "0113"


def upgrade() -> None:
    op.add_column("triggers", sa.Column("prefix", sa.String(512)))
