"""Accounts say when they were last seen."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0091"
down_revision = "0090"


def upgrade() -> None:
    op.add_column("accounts", sa.Column("last_seen_at", Instant))
