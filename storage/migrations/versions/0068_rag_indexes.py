"""Large collections are searched by an index; a document can be split and embedded anew from the text that is kept."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.vectors.extension import create_extension, create_near_indexes

revision = "0068"
down_revision = "0067"


def upgrade() -> None:
    op.add_column("rag_documents", sa.Column("keeps_text", sa.Boolean(), nullable=False, server_default=sa.false()))
    if op.get_bind().dialect.name != "postgresql":
        return
    op.alter_column("rag_documents", "keeps_text", server_default=None)
    if create_extension(op.get_bind()):
        create_near_indexes(op.get_bind())
