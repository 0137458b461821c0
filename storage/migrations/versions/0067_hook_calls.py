"""What post-auth hooks are told is written down, and users are counted by month."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0067"
down_revision = "0066"


def upgrade() -> None:
    op.create_index("ix_users_app_id_last_sign_in_at", "users", ["app_id", "last_sign_in_at"])
    op.create_table(
        "user_hook_calls",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_user_hook_calls")),
    )
    op.create_index("ix_user_hook_calls_app_id_created_at", "user_hook_calls", ["app_id", "created_at"])
    op.create_index(op.f("ix_user_hook_calls_created_at"), "user_hook_calls", ["created_at"])
