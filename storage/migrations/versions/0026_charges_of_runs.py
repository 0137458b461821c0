"""What was charged says for which run of an agent, and against which agents' budgets it counts."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("credit_reservations", sa.Column("run_id", sa.String(36), nullable=True))
    op.add_column("credit_reservations", sa.Column("agent_ids", sa.Text(), nullable=True))
    of_run = sa.text("run_id IS NOT NULL")
    op.create_index(
        "ix_credit_reservations_run",
        "credit_reservations",
        ["run_id"],
        sqlite_where=of_run,
        postgresql_where=of_run,
    )
