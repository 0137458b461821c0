"""Keys may be held to one app and have an end, and programs may be given such ones."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("oauth_codes", sa.Column("toolsets", sa.JSON(none_as_null=True)))
    for table in ("api_keys", "oauth_codes"):
        op.add_column(table, sa.Column("only_app_id", sa.String(36)))
        op.add_column(table, sa.Column("ends_at", Instant))
