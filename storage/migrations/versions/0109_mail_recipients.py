"""Apps list addresses beside those of their users that they send mail to."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Json

revision = "0109"
down_revision = "0108"


def upgrade() -> None:
    op.add_column("mail_settings", sa.Column("recipients", Json))
