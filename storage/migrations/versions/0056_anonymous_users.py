"""Apps say how their users sign in; a user may be without an address."""

import sqlalchemy as sa
from alembic import op

revision = "0056"
down_revision = "0055"


def upgrade() -> None:
    op.create_table(
        "user_settings",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("anonymous", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("anonymous_days", sa.Integer()),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_user_settings")),
    )
    with op.batch_alter_table("users") as users:
        users.alter_column("email", existing_type=sa.String(250), nullable=True)
