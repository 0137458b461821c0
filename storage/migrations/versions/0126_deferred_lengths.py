"""Resumable uploads may begin before their length is known."""

import sqlalchemy as sa
from alembic import op

revision = "0126"
down_revision = "0123"


def upgrade() -> None:
    op.add_column("files", sa.Column("length_deferred", sa.Boolean()))
