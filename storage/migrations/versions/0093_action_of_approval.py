"""An approval keeps which write of rows its call made."""

import sqlalchemy as sa
from alembic import op

revision = "0093"
down_revision = "0092"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("action_id", sa.String(20)))
