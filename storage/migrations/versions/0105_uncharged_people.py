"""The log of usage of people says which charge is still to be made in the database of the credits."""

import sqlalchemy as sa
from alembic import op

revision = "0105"
down_revision = "0101"


def upgrade() -> None:
    op.add_column("people_usage", sa.Column("reservation_id", sa.String(36)))
    is_uncharged = sa.text("reservation_id IS NOT NULL")
    op.create_index(
        "ix_people_usage_uncharged",
        "people_usage",
        ["created_at"],
        sqlite_where=is_uncharged,
        postgresql_where=is_uncharged,
    )
