"""People sign in to the console with passkeys."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0070"
down_revision = "0069"


def upgrade() -> None:
    table = "console_passkeys"
    op.create_table(
        table,
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("account_id", sa.String(36), nullable=False),
        sa.Column("credential_id", sa.String(1400), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("rp_id", sa.String(253), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("last_used_at", Instant),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f(f"fk_{table}_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sa.UniqueConstraint("credential_id", name=op.f(f"uq_{table}_credential_id")),
    )
    op.create_index(op.f(f"ix_{table}_account_id"), table, ["account_id"])
    op.create_table(
        "console_spent_attempts",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("used_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_console_spent_attempts")),
    )
