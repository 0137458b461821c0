"""Answers of models that callers asked to have kept."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "response_cache",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=True),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_response_cache")),
    )
    op.create_index(op.f("ix_response_cache_app_id"), "response_cache", ["app_id"], unique=False)
    op.create_index(op.f("ix_response_cache_expires_at"), "response_cache", ["expires_at"], unique=False)
    op.create_index(
        "ix_response_cache_organisation_id_kept_at_size",
        "response_cache",
        ["organisation_id", "kept_at", "size"],
        unique=False,
    )
