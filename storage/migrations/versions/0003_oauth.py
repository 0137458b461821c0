"""OAuth: clients and authorization codes."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "oauth_clients",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("redirect_uris", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oauth_clients")),
    )
    op.create_index(op.f("ix_oauth_clients_created_at"), "oauth_clients", ["created_at"], unique=False)
    op.create_table(
        "oauth_codes",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("client_id", sa.Text(), nullable=False),
        sa.Column("client_name", sa.String(length=100), nullable=False),
        sa.Column("redirect_uri", sa.Text(), nullable=False),
        sa.Column("redirect_given", sa.Boolean(), nullable=False),
        sa.Column("code_challenge", sa.String(length=43), nullable=False),
        sa.Column("resource", sa.Text(), nullable=True),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("approval", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("key_id", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_oauth_codes_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["organisation_id"], ["organisations.id"], name=op.f("fk_oauth_codes_organisation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_oauth_codes")),
    )
    op.create_index(op.f("ix_oauth_codes_account_id"), "oauth_codes", ["account_id"], unique=False)
    op.create_index(op.f("ix_oauth_codes_expires_at"), "oauth_codes", ["expires_at"], unique=False)
    op.create_index(op.f("ix_oauth_codes_organisation_id"), "oauth_codes", ["organisation_id"], unique=False)
