"""An organisation's failed jobs are found by an index."""

import sqlalchemy as sa
from alembic import op

revision = "0073"
down_revision = "0072"


def upgrade() -> None:
    has_failed = sa.text("finished_at IS NOT NULL AND error IS NOT NULL")
    op.create_index(
        "ix_jobs_failed", "jobs", ["tenant", "finished_at"], sqlite_where=has_failed, postgresql_where=has_failed
    )
