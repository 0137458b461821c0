"""A key may ask always, or never, before calls of a tool."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Json

revision = "0050"
down_revision = "0045"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("asks", Json))
