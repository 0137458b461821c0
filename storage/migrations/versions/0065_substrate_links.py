"""Users of an app may be mirrored in the substrate that the app is linked to."""

import sqlalchemy as sa
from alembic import op

revision = "0065"
down_revision = "0064"


def upgrade() -> None:
    op.add_column(
        "apps", sa.Column("substrate_autopropagate_users", sa.Boolean(), nullable=False, server_default=sa.false())
    )
