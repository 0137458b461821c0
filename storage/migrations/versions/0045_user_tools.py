"""An app gives tools to its users over MCP; their MCP clients have sessions, and codes on the way to one."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0045"
down_revision = "0041"


def upgrade() -> None:
    op.add_column("apps", sa.Column("user_tools", Json, nullable=False, server_default="[]"))
    op.add_column("user_sessions", sa.Column("client_id", sa.Text()))
    op.add_column("user_sessions", sa.Column("client_name", sa.String(100)))
    op.create_table(
        "user_mcp_codes",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(36), nullable=False),
        sa.Column("client_id", sa.Text(), nullable=False),
        sa.Column("client_name", sa.String(100), nullable=False),
        sa.Column("redirect_uri", sa.Text(), nullable=False),
        sa.Column("redirect_given", sa.Boolean(), nullable=False),
        sa.Column("code_challenge", sa.String(43), nullable=False),
        sa.Column("session_id", sa.String(36), nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("used_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "digest", name=op.f("pk_user_mcp_codes")),
    )
    op.create_index(op.f("ix_user_mcp_codes_expires_at"), "user_mcp_codes", ["expires_at"])
    op.create_index(op.f("ix_user_mcp_codes_app_id_user_id"), "user_mcp_codes", ["app_id", "user_id"])
