"""Reservations that have ended are found by an index of their own, which open ones cost nothing."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    has_ended = sa.text("ended_at IS NOT NULL")
    op.drop_index("ix_credit_reservations_ended_at", "credit_reservations")
    op.create_index(
        "ix_credit_reservations_ended",
        "credit_reservations",
        ["ended_at"],
        sqlite_where=has_ended,
        postgresql_where=has_ended,
    )
