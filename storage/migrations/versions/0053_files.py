"""Apps and their users keep files."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0053"
down_revision = "0052"


def upgrade() -> None:
    op.create_table(
        "files",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("user_id", sa.String(36)),
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("content_type", sa.String(255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("reserved_until", Instant, nullable=False),
        sa.Column("stored_as", sa.String(36)),
        sa.Column("sha256", sa.String(64)),
        sa.Column("stored_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_files")),
    )
    op.create_index("ix_files_app_id_user_id_id", "files", ["app_id", "user_id", "id"])
    is_pending = sa.text("stored_at IS NULL")
    op.create_index(
        "ix_files_pending", "files", ["app_id", "reserved_until"], sqlite_where=is_pending, postgresql_where=is_pending
    )
    op.create_table(
        "file_usage",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("used_bytes", sa.BigInteger(), nullable=False),
        sa.Column("files_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_file_usage")),
    )
