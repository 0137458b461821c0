"""Jobs name whom they are for, so that tenants take turns."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("tenant", sa.String(80), nullable=False, server_default="platform"))
    is_unfinished = sa.text("finished_at IS NULL")
    columns = ["tenant", "kind", "due_at"]
    op.create_index("ix_jobs_unfinished", "jobs", columns, sqlite_where=is_unfinished, postgresql_where=is_unfinished)
    op.drop_index("ix_jobs_due", "jobs")
