"""A call that waits keeps what its title is made of, so that an edit of its arguments changes the title, too."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Sealed

revision = "0088"
down_revision = "0087"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("ask", Sealed))
