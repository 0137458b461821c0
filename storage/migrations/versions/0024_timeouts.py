"""How long models may take, by app and by model server."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    for table in ("app_ai", "model_servers"):
        op.add_column(table, sa.Column("timeouts", sa.JSON(none_as_null=True), nullable=True))
