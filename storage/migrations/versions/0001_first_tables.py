"""The first tables: accounts, organisations, keys, apps, audit, KV rules."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("email", sa.String(length=250), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("password_hash", sa.String(length=200), nullable=True),
        sa.Column("email_verified", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("email", name=op.f("uq_accounts_email")),
    )
    op.create_table(
        "app_tombstones",
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("region", sa.String(length=40), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_app_tombstones")),
    )
    op.create_table(
        "audit_logs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=True),
        sa.Column("app_id", sa.String(length=36), nullable=True),
        sa.Column("category", sa.String(length=20), nullable=False),
        sa.Column("event_type", sa.String(length=80), nullable=False),
        sa.Column("action", sa.String(length=20), nullable=False),
        sa.Column("resource_type", sa.String(length=60), nullable=True),
        sa.Column("resource_id", sa.String(length=200), nullable=True),
        sa.Column("actor_type", sa.String(length=20), nullable=False),
        sa.Column("actor_id", sa.String(length=60), nullable=True),
        sa.Column("event_data", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("ip_address", sa.String(length=60), nullable=True),
        sa.Column("user_agent", sa.String(length=300), nullable=True),
        sa.Column("success", sa.Boolean(), nullable=False),
        sa.Column("error_message", sa.String(length=300), nullable=True),
        sa.Column("correlation_id", sa.String(length=80), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_logs")),
    )
    op.create_index("ix_audit_logs_app_id_created_at", "audit_logs", ["app_id", "created_at"], unique=False)
    op.create_index(
        "ix_audit_logs_organisation_id_created_at", "audit_logs", ["organisation_id", "created_at"], unique=False
    )

    op.create_table(
        "failures",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("family", sa.String(length=40), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("method", sa.String(length=10), nullable=False),
        sa.Column("path", sa.String(length=700), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.String(length=60), nullable=True),
        sa.Column("subject", sa.String(length=600), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failures")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_failures_at"), "failures", ["at"], unique=False)

    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("topic", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("origin", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_notices_created_at"), "notices", ["created_at"], unique=False)

    op.create_table(
        "organisations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("personal", sa.Boolean(), nullable=False),
        sa.Column("plan", sa.String(length=40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organisations")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("owner", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("algorithm", sa.String(length=10), nullable=False),
        sa.Column("public_jwk", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("private_jwk", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
        sa.UniqueConstraint("owner", "generation", name=op.f("uq_signing_keys_owner_generation")),
    )
    op.create_table(
        "suggestions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("category", sa.String(length=30), nullable=False),
        sa.Column("severity", sa.String(length=10), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("affected_tool", sa.String(length=128), nullable=True),
        sa.Column("proposed_solution", sa.Text(), nullable=True),
        sa.Column("source", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("agent_context", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("api_key_id", sa.String(length=36), nullable=True),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suggestions")),
    )
    op.create_table(
        "apps",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("subdomain", sa.String(length=63), nullable=False),
        sa.Column("region", sa.String(length=40), nullable=False),
        sa.Column("access_mode", sa.String(length=20), server_default="public", nullable=False),
        sa.Column("visibility", sa.String(length=20), server_default="private", nullable=False),
        sa.Column("listed", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("allowed_origins", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("storage_config", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("jwt_config", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("auth_hook_function", sa.String(length=100), nullable=True),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused_reason", sa.Text(), nullable=True),
        sa.Column("provisioning_status", sa.String(length=20), server_default="ready", nullable=False),
        sa.Column("provisioning_error", sa.Text(), nullable=True),
        sa.Column("template_source_app_id", sa.String(length=36), nullable=True),
        sa.Column("repo_latest_snapshot", sa.String(length=64), nullable=True),
        sa.Column("fork_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("substrate_organization_id", sa.String(length=36), nullable=True),
        sa.Column("anon_key", sa.String(length=60), nullable=False),
        sa.Column("function_key", sa.Text(), nullable=False),
        sa.Column("function_key_digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["organisation_id"], ["organisations.id"], name=op.f("fk_apps_organisation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_apps")),
        sa.UniqueConstraint("anon_key", name=op.f("uq_apps_anon_key")),
        sa.UniqueConstraint("function_key_digest", name=op.f("uq_apps_function_key_digest")),
        sa.UniqueConstraint("organisation_id", "name", name=op.f("uq_apps_organisation_id_name")),
        sa.UniqueConstraint("subdomain", name=op.f("uq_apps_subdomain")),
    )
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("email", sa.String(length=250), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("token_digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"], ["organisations.id"], name=op.f("fk_invitations_organisation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("token_digest", name=op.f("uq_invitations_token_digest")),
    )
    op.create_index(op.f("ix_invitations_organisation_id"), "invitations", ["organisation_id"], unique=False)

    op.create_table(
        "members",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_members_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["organisation_id"], ["organisations.id"], name=op.f("fk_members_organisation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("organisation_id", "account_id", name=op.f("pk_members")),
    )
    op.create_index(op.f("ix_members_account_id"), "members", ["account_id"], unique=False)

    op.create_table(
        "refresh_tokens",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("family", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_refresh_tokens_account_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_refresh_tokens")),
    )
    op.create_index(op.f("ix_refresh_tokens_account_id"), "refresh_tokens", ["account_id"], unique=False)
    op.create_index(op.f("ix_refresh_tokens_family"), "refresh_tokens", ["family"], unique=False)

    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=True),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("prefix", sa.String(length=12), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_api_keys_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name=op.f("fk_api_keys_app_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["organisation_id"], ["organisations.id"], name=op.f("fk_api_keys_organisation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_index(op.f("ix_api_keys_account_id"), "api_keys", ["account_id"], unique=False)
    op.create_index(op.f("ix_api_keys_app_id"), "api_keys", ["app_id"], unique=False)
    op.create_index(op.f("ix_api_keys_organisation_id"), "api_keys", ["organisation_id"], unique=False)

    op.create_table(
        "kv_rules",
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("pattern", sa.String(length=512), nullable=False),
        sa.Column("read", sa.String(length=10), nullable=False),
        sa.Column("write", sa.String(length=10), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name=op.f("fk_kv_rules_app_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("app_id", "pattern", name=op.f("pk_kv_rules")),
    )
