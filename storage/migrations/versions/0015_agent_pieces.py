"""Checkpoints of runs keep large values once, in rows of their own; earlier ones hold all they are, and still do."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "agent_pieces",
        sa.Column("thread_id", sa.String(length=80), nullable=False),
        sa.Column("digest", sa.String(length=40), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "digest", name=op.f("pk_agent_pieces")),
    )
