"""Whether parameters that a model does not take are left out, by app."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("app_ai", sa.Column("drop_params", sa.Boolean(), nullable=True))
