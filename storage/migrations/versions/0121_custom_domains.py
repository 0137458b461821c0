"""Apps have custom domains."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0121"
down_revision = "0119"


def upgrade() -> None:
    op.create_table(
        "custom_domains",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("hostname", sa.String(253), nullable=False),
        sa.Column("held_name", sa.String(253)),
        sa.Column("method", sa.String(4), nullable=False),
        sa.Column("token", sa.String(60), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("problems", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("asked_at", Instant, nullable=False),
        sa.Column("checked_at", Instant),
        sa.Column("verified_at", Instant),
        sa.Column("lost_at", Instant),
        sa.Column("next_check_at", Instant),
        sa.ForeignKeyConstraint(
            ["app_id"], ["apps.id"], name=op.f("fk_custom_domains_app_id_apps"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_custom_domains")),
        sa.UniqueConstraint("app_id", "hostname", name=op.f("uq_custom_domains_app_id_hostname")),
        sa.UniqueConstraint("held_name", name=op.f("uq_custom_domains_held_name")),
    )
    op.create_index(op.f("ix_custom_domains_hostname"), "custom_domains", ["hostname"])
    op.create_index(op.f("ix_custom_domains_next_check_at"), "custom_domains", ["next_check_at"])
