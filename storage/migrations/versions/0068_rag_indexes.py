"""Large collections are searched by an index; a document can be split and embedded anew from the text that is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0068"
down_revision = "0067"

_DIMENSIONS = (256, 384, 512, 768, 1024, 1536, 3072)
"""Those of usual models. Vectors of others are compared one by one."""


def upgrade() -> None:
    op.add_column("rag_documents", sa.Column("keeps_text", sa.Boolean(), nullable=False, server_default=sa.false()))
    if op.get_bind().dialect.name != "postgresql":
        return
    op.alter_column("rag_documents", "keeps_text", server_default=None)
    for dimensions in _DIMENSIONS:
        op.execute(
            f"CREATE INDEX ix_rag_vectors_near_{dimensions} ON rag_vectors"
            f" USING hnsw ((vector::halfvec({dimensions})) halfvec_cosine_ops) WHERE dimensions = {dimensions}"
        )
