"""Members who only decide may be kept to some apps, from their invitation on."""

import sqlalchemy as sa
from alembic import op

revision = "0087"
down_revision = "0086"


def upgrade() -> None:
    op.add_column("members", sa.Column("app_ids", sa.JSON))
    op.add_column("invitations", sa.Column("app_ids", sa.JSON))
