"""Model servers and provider keys of organisations."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "provider_keys",
        sa.Column("id", sa.String(length=100), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("provider", sa.String(length=60), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("last4", sa.String(length=4), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_provider_keys_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_provider_keys")),
    )
    op.create_index(op.f("ix_provider_keys_organisation_id"), "provider_keys", ["organisation_id"])
    op.create_table(
        "model_servers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("url", sa.String(length=500), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("last4", sa.String(length=4), nullable=True),
        sa.Column("models", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("problem", sa.String(length=200), nullable=True),
        sa.Column("probed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_model_servers_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_servers")),
        sa.UniqueConstraint("organisation_id", "name", name=op.f("uq_model_servers_organisation_id_name")),
    )
