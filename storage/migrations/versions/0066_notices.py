"""People are told of calls that wait."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json, Sealed

revision = "0066"
down_revision = "0065"


def upgrade() -> None:
    op.create_table(
        "notice_settings",
        _account(),
        sa.Column("which", sa.String(10), nullable=False),
        sa.Column("digest_minutes", sa.Integer(), nullable=False),
        sa.Column("quiet_from", sa.String(5)),
        sa.Column("quiet_until", sa.String(5)),
        sa.Column("time_zone", sa.String(60)),
        sa.Column("escalate_minutes", sa.Integer()),
        sa.Column("escalate_to", sa.String(36)),
        sa.Column("last_sent_at", Instant),
        sa.Column("updated_at", Instant, nullable=False),
        _belongs_to_account("notice_settings"),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_notice_settings")),
    )
    op.create_table(
        "notice_channels",
        sa.Column("id", sa.String(36), nullable=False),
        _account(),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("address", sa.String(300), nullable=False),
        sa.Column("target", Sealed, nullable=False),
        sa.Column("secret", Sealed),
        sa.Column("confirmed", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("created_at", Instant, nullable=False),
        _belongs_to_account("notice_channels"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice_channels")),
    )
    op.create_index("ix_notice_channels_account_id", "notice_channels", ["account_id"])
    op.create_table(
        "approval_notices",
        sa.Column("approval_id", sa.String(30), nullable=False),
        _account(),
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("escalated_by", sa.String(36)),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("due_at", Instant, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        _belongs_to_account("approval_notices"),
        sa.PrimaryKeyConstraint("approval_id", "account_id", name=op.f("pk_approval_notices")),
    )
    op.create_index(op.f("ix_approval_notices_created_at"), "approval_notices", ["created_at"])
    columns = ["account_id", "state", "due_at"]
    op.create_index("ix_approval_notices_account_id_state_due_at", "approval_notices", columns)
    op.create_table(
        "notice_messages",
        sa.Column("id", sa.String(36), nullable=False),
        _account(),
        sa.Column("channel_id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("approval_ids", Json, nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("trying_since", Instant),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("error", sa.String(300)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("finished_at", Instant),
        _belongs_to_account("notice_messages"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice_messages")),
    )
    op.create_index(op.f("ix_notice_messages_created_at"), "notice_messages", ["created_at"])
    columns = ["account_id", "created_at", "id"]
    op.create_index("ix_notice_messages_account_id_created_at_id", "notice_messages", columns)
    op.create_table(
        "push_identities",
        sa.Column("id", sa.String(20), nullable=False),
        sa.Column("private_key", Sealed, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_push_identities")),
    )


def _account() -> sa.Column[str]:
    return sa.Column("account_id", sa.String(36), nullable=False)


def _belongs_to_account(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_account_id_accounts")
    return sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=name, ondelete="CASCADE")
