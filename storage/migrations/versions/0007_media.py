"""Generation jobs: images and videos."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "generation_jobs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("submitter", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("handle", sa.Text(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("files", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("reservation_id", sa.String(length=36), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=True),
        sa.Column("created_at", instant, nullable=False),
        sa.Column("polled_at", instant, nullable=False),
        sa.Column("released_at", instant, nullable=True),
        sa.Column("ended_at", instant, nullable=True),
        sa.Column("settled_at", instant, nullable=True),
        sa.Column("emptied_at", instant, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generation_jobs")),
    )
    is_unended = sa.text("ended_at IS NULL")
    holding = sa.text("settled_at IS NULL AND released_at IS NULL")
    op.create_index("ix_generation_jobs_app_id", "generation_jobs", ["app_id"])
    op.create_index("ix_generation_jobs_ended_at", "generation_jobs", ["ended_at"])
    op.create_index(
        "ix_generation_jobs_unended",
        "generation_jobs",
        ["created_at"],
        sqlite_where=is_unended,
        postgresql_where=is_unended,
    )
    op.create_index(
        "ix_generation_jobs_holding",
        "generation_jobs",
        ["polled_at"],
        sqlite_where=holding,
        postgresql_where=holding,
    )
    op.create_table(
        "app_freezes",
        sa.Column("family", sa.String(length=40), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("family", "app_id", name=op.f("pk_app_freezes")),
    )
