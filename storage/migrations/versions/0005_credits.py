"""Credits: accounts, reservations, budgets, top-ups and usage."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "credit_accounts",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("month", sa.Date(), nullable=False),
        sa.Column("allowance_used", sa.BigInteger(), nullable=False),
        sa.Column("once_used", sa.BigInteger(), nullable=False),
        sa.Column("credits", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("allowance", sa.BigInteger(), nullable=True),
        sa.Column("floor", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_credit_accounts_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", name=op.f("pk_credit_accounts")),
    )
    op.create_table(
        "credit_reservations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=True),
        sa.Column("key_id", sa.String(length=36), nullable=True),
        sa.Column("purpose", sa.String(length=40), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        _of_account("credit_reservations"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credit_reservations")),
    )
    op.create_index("ix_credit_reservations_ended_at", "credit_reservations", ["ended_at"])
    is_unfinished = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_credit_reservations_open",
        "credit_reservations",
        ["expires_at"],
        sqlite_where=is_unfinished,
        postgresql_where=is_unfinished,
    )
    op.create_table(
        "credit_budgets",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("subject", sa.String(length=10), nullable=False),
        sa.Column("subject_id", sa.String(length=36), nullable=False),
        sa.Column("period", sa.String(length=10), nullable=False),
        sa.Column("most", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.Date(), nullable=False),
        sa.Column("spent", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        _of_account("credit_budgets"),
        sa.PrimaryKeyConstraint("organisation_id", "subject", "subject_id", "period", name=op.f("pk_credit_budgets")),
    )
    op.create_table(
        "credit_top_ups",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("reference", sa.String(length=200), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        _of_account("credit_top_ups"),
        sa.PrimaryKeyConstraint("organisation_id", "reference", name=op.f("pk_credit_top_ups")),
    )
    op.create_table(
        "credit_usage",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("key_id", sa.String(length=36), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("byok", sa.Boolean(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        _of_account("credit_usage"),
        sa.PrimaryKeyConstraint(
            "organisation_id", "day", "app_id", "key_id", "model", "byok", name=op.f("pk_credit_usage")
        ),
    )


def _of_account(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["organisation_id"],
        ["credit_accounts.organisation_id"],
        name=op.f(f"fk_{table}_organisation_id"),
        ondelete="CASCADE",
    )
