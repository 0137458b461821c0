"""Apps have a repository of their source files."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0058"
down_revision = "0057"


def upgrade() -> None:
    op.create_table(
        "repo_snapshots",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("manifest", Json, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_repo_snapshots")),
    )
    op.create_table(
        "repo_blobs",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_as", sa.String(36), nullable=False),
        sa.Column("used_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "sha256", name=op.f("pk_repo_blobs")),
    )
