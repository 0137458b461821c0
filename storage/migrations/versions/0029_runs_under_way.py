"""Runs under way are counted without those that have ended."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    under_way = sa.text("finished_at IS NULL")
    op.create_index(
        "ix_agent_runs_under_way",
        "agent_runs",
        ["app_id", "agent_id", "status"],
        sqlite_where=under_way,
        postgresql_where=under_way,
    )
