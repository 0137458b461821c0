"""Apps look up people."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0096"
down_revision = "0095"

_ID = sa.String(36)


def upgrade() -> None:
    op.create_table(
        "people_profiles",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("network_url", sa.Text(), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("profile", Json),
        sa.Column("expires_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "key", name=op.f("pk_people_profiles")),
    )
    op.create_index("ix_people_profiles_expires_at", "people_profiles", ["expires_at"])
    op.create_table(
        "people_lookups",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("organisation_id", _ID, nullable=False),
        sa.Column("network_url", sa.Text()),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("email", sa.Text()),
        sa.Column("token_digest", sa.String(64), nullable=False),
        sa.Column("reservation_id", _ID),
        sa.Column("credits", sa.Integer(), nullable=False),
        sa.Column("result_credits", sa.Integer(), nullable=False),
        sa.Column("result_cost", sa.BigInteger(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("ended_at", Instant),
        sa.Column("settled_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_people_lookups")),
    )
    pending = sa.text("status = 'pending'")
    op.create_index(
        "ix_people_lookups_pending", "people_lookups", ["created_at"], sqlite_where=pending, postgresql_where=pending
    )
    is_unsettled = sa.text("ended_at IS NOT NULL AND settled_at IS NULL")
    op.create_index(
        "ix_people_lookups_unsettled",
        "people_lookups",
        ["ended_at"],
        sqlite_where=is_unsettled,
        postgresql_where=is_unsettled,
    )
    op.create_table(
        "people_usage",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("credits", sa.Integer(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("charged", sa.BigInteger(), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=False),
        sa.Column("network_url", sa.Text()),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_people_usage")),
    )
    op.create_index("ix_people_usage_created_at", "people_usage", ["app_id", "created_at"])
