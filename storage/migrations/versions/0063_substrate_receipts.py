"""Actions of a substrate have signed receipts."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Sealed

revision = "0063"
down_revision = "0062"

_TABLE = "substrate_receipts"


def upgrade() -> None:
    op.add_column("substrate_settings", sa.Column("receipt_key", Sealed))
    op.add_column(
        "substrate_settings", sa.Column("last_receipt", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    )
    first = sa.text(f"'{'0' * 64}'")
    op.add_column(
        "substrate_settings", sa.Column("last_receipt_digest", sa.String(64), nullable=False, server_default=first)
    )
    op.create_table(
        _TABLE,
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("action_id", sa.String(64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("signature", sa.String(100), nullable=False),
        sa.Column("salt", sa.String(40)),
        sa.Column("created_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f(f"fk_{_TABLE}_organisation_id_organisations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "seq", name=op.f(f"pk_{_TABLE}")),
    )
    op.create_index(f"ix_{_TABLE}_action_id", _TABLE, ["organisation_id", "action_id"])
