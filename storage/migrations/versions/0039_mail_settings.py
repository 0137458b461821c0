"""Apps say how their mail looks, and may have a mail server of their own."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0039"
down_revision = "0037"


def upgrade() -> None:
    op.create_table(
        "mail_settings",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("from_name", sa.String(100)),
        sa.Column("reply_to", sa.String(250)),
        sa.Column("colour", sa.String(7)),
        sa.Column("smtp_host", sa.String(253)),
        sa.Column("smtp_port", sa.Integer()),
        sa.Column("smtp_tls", sa.String(10)),
        sa.Column("smtp_from", sa.String(250)),
        sa.Column("smtp_username", sa.String(250)),
        sa.Column("smtp_password", sa.Text()),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_mail_settings")),
    )
