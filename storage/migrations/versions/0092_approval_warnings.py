"""Approvals keep the warnings of their executed calls."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Sealed

revision = "0092"
down_revision = "0091"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("warnings", Sealed))
