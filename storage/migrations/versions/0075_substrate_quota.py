"""The bytes of a substrate are counted; actions that wrote rows with strangers' text are marked, too."""

import sqlalchemy as sa
from alembic import op

revision = "0075"
down_revision = "0074"

_WRITTEN = (
    "substrate_entities",
    "substrate_decisions",
    "substrate_commitments",
    "substrate_learnings",
    "substrate_source_artifacts",
)


def upgrade() -> None:
    op.add_column("substrate_settings", sa.Column("used_bytes", sa.BigInteger))
    for table in _WRITTEN:
        op.execute(
            "UPDATE substrate_action_ledger SET from_strangers = true"  # noqa: S608 - our names
            " WHERE NOT from_strangers AND (organisation_id, id) IN"
            f" (SELECT organisation_id, action_id FROM {table} WHERE from_strangers)"
        )
