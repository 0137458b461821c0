"""Ended runs are kept for as long as their agent says, and found by when they ended."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("agents", sa.Column("retention_days", sa.Integer(), nullable=True))
    has_ended = sa.text("finished_at IS NOT NULL")
    op.create_index(
        "ix_agent_runs_finished_at", "agent_runs", ["finished_at"], sqlite_where=has_ended, postgresql_where=has_ended
    )
    op.create_index("ix_approvals_run_id", "approvals", ["run_id"])
