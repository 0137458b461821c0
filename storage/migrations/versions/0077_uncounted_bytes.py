"""The bytes that a substrate has got since are kept while those of before the upgrade are being counted."""

import sqlalchemy as sa
from alembic import op

revision = "0077"
down_revision = "0076"


def upgrade() -> None:
    op.add_column(
        "substrate_settings", sa.Column("uncounted_bytes", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    )
