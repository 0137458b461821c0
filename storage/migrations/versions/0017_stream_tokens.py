"""A token of a stream lets its reader open the stream again."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("agent_stream_tokens", sa.Column("opened_at", sa.DateTime(timezone=True), nullable=True))
