"""Documents come from addresses on the web too."""

import sqlalchemy as sa
from alembic import op

revision = "0072"
down_revision = "0071"


def upgrade() -> None:
    op.add_column("rag_documents", sa.Column("url", sa.String(2000)))
