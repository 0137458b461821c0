"""Apps have a name that people read, beside the one of their addresses."""

import sqlalchemy as sa
from alembic import op

revision = "0095"
down_revision = "0094"


def upgrade() -> None:
    op.add_column("apps", sa.Column("display_name", sa.String(100)))
