"""Deployments of sites say whether they go live; repositories, whether a push deploys functions."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0118"
down_revision = "0116"


def upgrade() -> None:
    op.add_column("site_deployments", sa.Column("goes_live", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.create_table(
        "repo_settings",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("deploys_functions", sa.Boolean(), nullable=False),
        sa.Column("snapshot_id", sa.String(64)),
        sa.Column("pusher", Json),
        sa.Column("job_id", sa.String(36)),
        sa.Column("job_at", Instant),
        sa.Column("digests", Json, nullable=False),
        sa.Column("outcome", Json),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_repo_settings")),
    )
