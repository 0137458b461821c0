"""A function may name the hosts that its `fetch` reaches."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Json

revision = "0119"
down_revision = "0118"


def upgrade() -> None:
    op.add_column("functions", sa.Column("allowed_hosts", Json))
