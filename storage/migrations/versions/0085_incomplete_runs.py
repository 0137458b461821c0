"""A run and a model call say whether an answer was cut; an agent's dedupe window may follow from its visibility.

Agents with the former default of 60 seconds get the new one: 60 for private agents, none for all others.
"""

import sqlalchemy as sa
from alembic import op

revision = "0085"
down_revision = "0084"


def upgrade() -> None:
    op.add_column("agent_runs", sa.Column("incomplete", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("agent_model_calls", sa.Column("finish_reason", sa.String(40), nullable=True))
    op.execute("UPDATE agents SET dedupe_window = -1 WHERE dedupe_window = 60")
