"""What the arguments of a proposed call only name, as it was then."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("meaning", sa.String(64)))
