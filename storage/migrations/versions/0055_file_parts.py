"""Files arrive in parts, which are kept when a connection breaks."""

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"


def upgrade() -> None:
    op.create_table(
        "file_parts",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("file_id", sa.String(36), nullable=False),
        sa.Column("start_byte", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_as", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("app_id", "file_id", "start_byte", name=op.f("pk_file_parts")),
    )
