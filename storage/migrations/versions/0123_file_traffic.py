"""What published files have sent is counted by month."""

import sqlalchemy as sa
from alembic import op

revision = "0123"
down_revision = "0122"


def upgrade() -> None:
    op.create_table(
        "file_traffic",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("app_id", "month", name=op.f("pk_file_traffic")),
    )
