"""A ticket of the substrate's stream says which key got it, so that the stream ends with the key."""

import sqlalchemy as sa
from alembic import op

revision = "0079"
down_revision = "0078"


def upgrade() -> None:
    op.add_column("substrate_stream_tickets", sa.Column("key_id", sa.String(36)))
