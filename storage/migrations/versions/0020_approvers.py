"""Who may decide about a call, who of several has approved it, and what was used in place of what was asked."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Json, Sealed

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    for table in ("agents", "agent_runs"):
        op.add_column(table, sa.Column("approvers", Json))
    for column in (
        sa.Column("approvers", sa.String(120)),
        sa.Column("persons", sa.Integer),
        sa.Column("agreed", Json),
        sa.Column("starter", sa.String(100)),
        sa.Column("used", Sealed),
        sa.Column("asked_summary", sa.Text),
    ):
        op.add_column("approvals", column)
    op.create_index("ix_approvals_proposer_request_id", "approvals", ["proposer", "request_id"])
