"""A refusal names the user of the app whose call it was, so that users can be shown their own and no others."""

import sqlalchemy as sa
from alembic import op

revision = "0076"
down_revision = "0075"


def upgrade() -> None:
    op.add_column("failures", sa.Column("user_id", sa.String(64)))
