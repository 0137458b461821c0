"""A geography may have several cells: new apps go to the least loaded one, and an operator can drain one."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0033"
down_revision = "0031"


def upgrade() -> None:
    op.create_index("ix_apps_region_id", "apps", ["region", "id"])
    op.create_table(
        "draining_cells",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("drain_id", sa.String(36), nullable=False),
        sa.Column("since", Instant, nullable=False),
        sa.Column("started_by", sa.String(200), nullable=False),
        sa.Column("emptied_at", Instant),
        sa.Column("last_error", sa.Text()),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_draining_cells")),
    )
