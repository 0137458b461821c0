"""Files have data of the caller's own, may be published, and are copied once."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0122"
down_revision = "0121"


def upgrade() -> None:
    op.add_column("files", sa.Column("metadata", sa.JSON()))
    op.add_column("files", sa.Column("published_at", Instant))
    op.add_column("files", sa.Column("sent_metadata", sa.Text()))
    op.add_column("files", sa.Column("request_key", sa.String(64)))
    op.add_column("files", sa.Column("request_digest", sa.String(64)))
    op.create_index(op.f("ix_files_app_id_request_key"), "files", ["app_id", "request_key"], unique=True)
