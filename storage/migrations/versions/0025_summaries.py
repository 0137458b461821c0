"""Summaries of approvals are made when they are read: what they are made of is sealed."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Sealed

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    for column in ("fields", "asked_fields"):
        op.add_column("approvals", sa.Column(column, Sealed))
    # What waits is told by its arguments, which are sealed; what is over, without them.
    for column in ("summary", "asked_summary"):
        op.drop_column("approvals", column)
