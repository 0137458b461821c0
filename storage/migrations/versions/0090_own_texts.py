"""Places may be marked as the app's own text, documents and files say who stored them, and approvals what a run had
read."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Sealed

revision = "0090"
down_revision = "0089"


def upgrade() -> None:
    op.add_column("rag_collections", sa.Column("own_text", sa.Boolean()))
    op.add_column("rag_documents", sa.Column("writer", sa.String(10)))
    op.add_column("rag_documents", sa.Column("next_writer", sa.String(10)))
    op.add_column("files", sa.Column("writer", sa.String(10)))
    for name in ("kv_own_prefixes", "file_own_folders"):
        op.create_table(
            name,
            sa.Column("app_id", sa.String(36), primary_key=True),
            sa.Column("prefix", sa.String(255), primary_key=True),
            sa.Column("marked_by", sa.String(80)),
            sa.Column("marked_at", Instant, nullable=False),
        )
    op.create_table(
        "kv_outside_keys",
        sa.Column("app_id", sa.String(36), primary_key=True),
        sa.Column("key", sa.String(512), primary_key=True),
    )
    op.add_column("approvals", sa.Column("reading", Sealed))
