"""Keys and invitations name who made them, and function keys to whom they were shown."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_UNKNOWN = "unknown"
"""Stands for every account: until now nobody wrote down to whom a function key was shown."""


def upgrade() -> None:
    op.add_column("apps", sa.Column("function_key_account_id", sa.String(length=36)))
    op.add_column("apps", sa.Column("function_key_key_id", sa.String(length=36)))
    op.add_column("invitations", sa.Column("account_id", sa.String(length=36)))
    op.add_column("invitations", sa.Column("key_id", sa.String(length=36)))
    op.add_column("api_keys", sa.Column("made_by", sa.String(length=36)))
    op.create_index("ix_api_keys_made_by", "api_keys", ["made_by"])
    apps = sa.table("apps", sa.column("function_key_account_id"))
    op.execute(sa.update(apps).values(function_key_account_id=_UNKNOWN))
