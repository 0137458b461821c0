"""Writers on Postgres wait for those of the same tenant only."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.create_table(
        "tenant_locks",
        sa.Column("tenant", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_tenant_locks")),
    )
