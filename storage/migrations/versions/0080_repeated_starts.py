"""Finds the run that a start repeats without a look at the other runs of the agent.

Without the time in the index of idempotency keys, SQLite reads the runs of the agent one by one, the latest first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0080"
down_revision = "0079"


def upgrade() -> None:
    op.drop_index("ix_agent_runs_agent_id_idempotency_key", "agent_runs")
    _create("idempotency_key", where="idempotency_key IS NOT NULL")
    _create("subject", where="idempotency_key IS NULL")


def _create(column: str, where: str) -> None:
    op.create_index(
        f"ix_agent_runs_agent_id_{column}",
        "agent_runs",
        ["agent_id", column, "created_at"],
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )
