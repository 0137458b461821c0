"""Tool servers of apps, for their agents."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "agent_tool_servers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("transport", sa.String(length=20), nullable=False),
        sa.Column("auth", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("credential", sa.Text(), nullable=True),
        sa.Column("tool_acl", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("accepted", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("seen", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("last_health", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_tool_servers")),
        sa.UniqueConstraint("app_id", "name", name=op.f("uq_agent_tool_servers_app_id_name")),
    )
