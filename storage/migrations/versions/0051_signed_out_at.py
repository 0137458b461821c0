"""A sign-out ends all sessions of an account, wherever they are kept."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0051"
down_revision = "0050"


def upgrade() -> None:
    op.add_column("accounts", sa.Column("signed_out_at", Instant))
