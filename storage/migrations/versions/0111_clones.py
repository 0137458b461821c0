"""Apps are cloned: the jobs, where a copy comes from, and who is told."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0111"
down_revision = "0110"


def upgrade() -> None:
    op.create_table(
        "clone_jobs",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("source_app_id", sa.String(36), nullable=False),
        sa.Column("dest_app_id", sa.String(36), nullable=False),
        sa.Column("dest_region", sa.String(40), nullable=False),
        sa.Column("account_id", sa.String(36), nullable=False),
        sa.Column("maker", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("status", sa.String(40), nullable=False),
        sa.Column("is_failing", sa.Boolean(), nullable=False),
        sa.Column("error_message", sa.Text()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("retry_count", sa.Integer(), nullable=False),
        sa.Column("env_values", sa.Text()),
        sa.Column("warnings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("unfilled_env_vars", sa.JSON(none_as_null=True)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("completed_at", Instant),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clone_jobs")),
    )
    op.create_index(op.f("ix_clone_jobs_source_app_id"), "clone_jobs", ["source_app_id"])
    op.create_index(op.f("ix_clone_jobs_organisation_id"), "clone_jobs", ["organisation_id"])
    op.create_index("ix_clone_jobs_account_id_created_at", "clone_jobs", ["account_id", "created_at"])
    op.create_table(
        "clone_origins",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("source_app_id", sa.String(36), nullable=False),
        sa.Column("source_name", sa.String(63), nullable=False),
        sa.Column("withheld", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("unfilled_env_vars", sa.JSON(none_as_null=True)),
        sa.Column("created_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name=op.f("fk_clone_origins_app_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_clone_origins")),
    )
    op.create_table(
        "clone_webhooks",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("url", sa.String(2000), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(["id"], ["apps.id"], name=op.f("fk_clone_webhooks_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clone_webhooks")),
    )
