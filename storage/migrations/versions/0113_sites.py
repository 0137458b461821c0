"""Apps have sites: deployments, their files, the contents of these, and what was sent."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json, Sealed

revision = "0113"
down_revision = "0111"


def upgrade() -> None:
    op.create_table(
        "sites",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("live_id", sa.String(36)),
        sa.Column("variables", Sealed),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_sites")),
    )
    op.create_table(
        "site_deployments",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("framework", sa.String(20), nullable=False),
        sa.Column("upload_as", sa.String(36)),
        sa.Column("upload_bytes", sa.BigInteger()),
        sa.Column("files_count", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("rules", Json, nullable=False),
        sa.Column("warnings", Json, nullable=False),
        sa.Column("error", Json),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("started_at", Instant),
        sa.Column("ended_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_site_deployments")),
    )
    op.create_index(op.f("ix_site_deployments_status"), "site_deployments", ["status"])
    op.create_table(
        "site_files",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("deployment_id", sa.String(36), nullable=False),
        sa.Column("path", sa.String(500), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("app_id", "deployment_id", "path", name=op.f("pk_site_files")),
    )
    op.create_table(
        "site_contents",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("stored_by", sa.String(36), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gzip_bytes", sa.BigInteger()),
        sa.PrimaryKeyConstraint("app_id", "sha256", name=op.f("pk_site_contents")),
    )
    op.create_table(
        "site_traffic",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("app_id", "month", name=op.f("pk_site_traffic")),
    )
