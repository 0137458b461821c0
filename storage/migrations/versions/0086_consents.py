"""A question may announce the write that follows it, and its answer may approve that one call."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Sealed

revision = "0086"
down_revision = "0085"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("announced", Sealed))
    op.add_column("approvals", sa.Column("consent", sa.String(64)))
