"""A provider's bot belongs to one row, and bots remember the run of an agent that spends for them."""

import sqlalchemy as sa
from alembic import op

revision = "0097"
down_revision = "0096"


def upgrade() -> None:
    op.add_column("meeting_bots", sa.Column("spender", sa.JSON(none_as_null=True)))
    # The first row has sent the bot; a later one had only found it in the same meeting.
    op.execute(
        "UPDATE meeting_bots SET provider_id = NULL, recording_state = 'none', transcript_state = 'none' "
        "WHERE provider_id IS NOT NULL AND EXISTS (SELECT 1 FROM meeting_bots AS earlier "
        "WHERE earlier.provider = meeting_bots.provider AND earlier.provider_id = meeting_bots.provider_id "
        "AND earlier.id < meeting_bots.id)"
    )
    op.drop_index("ix_meeting_bots_provider_id", "meeting_bots")
    has_provider_id = sa.text("provider_id IS NOT NULL")
    op.create_index(
        "uq_meeting_bots_provider_id",
        "meeting_bots",
        ["provider", "provider_id"],
        unique=True,
        sqlite_where=has_provider_id,
        postgresql_where=has_provider_id,
    )
