"""An installation knows where it lives, and whether it is a copy."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0108"
down_revision = "0105"


def upgrade() -> None:
    op.add_column("installation", sa.Column("place", sa.String(100)))
    op.add_column("installation", sa.Column("copied_at", Instant))
    op.add_column("installation", sa.Column("copied_how", sa.Text()))
