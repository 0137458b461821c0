"""Approvals, and the limits that a key is held to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("toolsets", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("api_keys", sa.Column("read_only", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("api_keys", sa.Column("approval", sa.String(length=20), server_default="none", nullable=False))
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(length=30), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=True),
        sa.Column("proposer", sa.String(length=60), nullable=False),
        sa.Column("caller", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("tool", sa.String(length=128), nullable=False),
        sa.Column("tool_version", sa.String(length=16), nullable=False),
        sa.Column("effect", sa.String(length=20), nullable=False),
        sa.Column("door", sa.String(length=20), nullable=False),
        sa.Column("request_id", sa.String(length=80), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("arguments_digest", sa.String(length=64), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_by", sa.String(length=36), nullable=True),
        sa.Column("decided_with", sa.String(length=60), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("lease_by", sa.String(length=36), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("collected_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index("ix_approvals_organisation_id_created_at", "approvals", ["organisation_id", "created_at"])
    op.create_index("ix_approvals_status_lease_until", "approvals", ["status", "lease_until"])
    op.create_index(
        "uq_approvals_pending",
        "approvals",
        ["proposer", "tool", "tool_version", "arguments_digest"],
        unique=True,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
