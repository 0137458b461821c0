"""What runs asked their models is kept with them."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0069"
down_revision = "0068"


def upgrade() -> None:
    table = "agent_model_calls"
    op.create_table(
        table,
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(200)),
        sa.Column("prompt", Json, nullable=False),
        sa.Column("left_out", sa.Integer(), nullable=False),
        sa.Column("answer", Json),
        sa.Column("error", sa.Text()),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("milliseconds", sa.Integer(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["agent_runs.id"], name=op.f(f"fk_{table}_run_id_agent_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("app_id", "run_id", "step", name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_run_id"), table, ["run_id"])
