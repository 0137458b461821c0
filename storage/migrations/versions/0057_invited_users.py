"""Apps invite users, and codes that are mailed have links."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0057"
down_revision = "0056"


def upgrade() -> None:
    op.add_column("user_settings", sa.Column("invite_only", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("user_settings", sa.Column("logo_url", sa.String(2000)))
    op.add_column("user_settings", sa.Column("colour", sa.String(7)))
    op.add_column("user_codes", sa.Column("link_digest", sa.String(64)))
    op.add_column("user_codes", sa.Column("redirect_to", sa.Text()))
    op.create_index("ix_user_codes_app_id_link_digest", "user_codes", ["app_id", "link_digest"])
    op.create_table(
        "user_invitations",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("email", sa.String(250), nullable=False),
        sa.Column("role", sa.String(60), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("accepted_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_user_invitations")),
        sa.UniqueConstraint("app_id", "email", name=op.f("uq_user_invitations_app_id_email")),
    )
    op.create_index(op.f("ix_user_invitations_expires_at"), "user_invitations", ["expires_at"])
