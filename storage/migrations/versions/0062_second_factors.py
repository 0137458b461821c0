"""Users of apps have passkeys and a second factor."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json, Sealed

revision = "0062"
down_revision = "0061"


def upgrade() -> None:
    op.add_column("user_settings", sa.Column("second_factor", sa.String(10), nullable=False, server_default="optional"))
    _create_table(
        "user_totp",
        sa.Column("secret", Sealed, nullable=False),
        sa.Column("confirmed_at", Instant),
        sa.Column("last_period", sa.BigInteger()),
        sa.Column("wrong_tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("wrong_since", Instant),
        sa.Column("created_at", Instant, nullable=False),
        key=("app_id", "user_id"),
    )
    _create_table(
        "user_recovery_codes",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("used_at", Instant),
        key=("app_id", "user_id", "digest"),
    )
    _create_table(
        "user_passkeys",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("credential_id", sa.String(1400), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("rp_id", sa.String(253), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("transports", Json, nullable=False),
        sa.Column("backed_up", sa.Boolean(), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("last_used_at", Instant),
        sa.UniqueConstraint("app_id", "credential_id", name=op.f("uq_user_passkeys_app_id_credential_id")),
        key=("app_id", "id"),
    )
    op.create_index("ix_user_passkeys_app_id_user_id", "user_passkeys", ["app_id", "user_id"])
    _create_table(
        "user_challenges",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("method", sa.String(40), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("is_new", sa.Boolean(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("used_at", Instant),
        key=("app_id", "digest"),
    )
    op.create_index(op.f("ix_user_challenges_expires_at"), "user_challenges", ["expires_at"])
    op.create_index("ix_user_challenges_app_id_user_id", "user_challenges", ["app_id", "user_id"])


def _create_table(name: str, *columns: Any, key: tuple[str, ...]) -> None:
    of = (sa.Column("app_id", sa.String(36), nullable=False), sa.Column("user_id", sa.String(36), nullable=False))
    op.create_table(name, *of, *columns, sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{name}")))
