"""Apps have functions."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json, Sealed

revision = "0110"
down_revision = "0109"

_ID = sa.String(36)


def upgrade() -> None:
    op.create_table(
        "functions",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("taken_name", sa.String(100), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("triggers", Json, nullable=False),
        sa.Column("webhook_secret", Sealed()),
        sa.Column("env", Sealed()),
        sa.Column("agent_tool", sa.Boolean(), nullable=False),
        sa.Column("agent_tool_description", sa.Text()),
        sa.Column("agent_tool_mode", sa.String(10), nullable=False),
        sa.Column("agent_tool_exposed_to", sa.String(20), nullable=False),
        sa.Column("allow_service_key_impersonation", sa.Boolean(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("deployed_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("deleted_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_functions")),
        sa.UniqueConstraint("app_id", "taken_name", name=op.f("uq_functions_app_id_taken_name")),
    )
    op.create_table(
        "function_versions",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("function_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("language", sa.String(20), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("input_schema", Json),
        sa.Column("imports", Json, nullable=False),
        sa.Column("message", sa.Text()),
        sa.Column("author", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "function_id", "number", name=op.f("pk_function_versions")),
    )
    op.create_table(
        "function_app_env",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("env", Sealed(), nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", name=op.f("pk_function_app_env")),
    )
    op.create_table(
        "function_invocations",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("function_id", _ID, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("trigger", sa.String(20), nullable=False),
        sa.Column("method", sa.String(10), nullable=False),
        sa.Column("path", sa.String(700), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("duration_ms", sa.Float(), nullable=False),
        sa.Column("memory_mb", sa.Float()),
        sa.Column("error", sa.Text()),
        sa.Column("stack", sa.Text()),
        sa.Column("shutdown_reason", sa.String(40)),
        sa.Column("console_logs", Json, nullable=False),
        sa.Column("request_id", sa.String(80), nullable=False),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("logged_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_function_invocations")),
    )
    op.create_index("ix_function_invocations_function", "function_invocations", ["app_id", "function_id", "logged_at"])
    op.create_index("ix_function_invocations_logged_at", "function_invocations", ["logged_at"])
    op.create_table(
        "function_usage",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("function_id", _ID, nullable=False),
        sa.Column("hour", sa.String(13), nullable=False),
        sa.Column("invocations", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("duration_ms", sa.Float(), nullable=False),
        sa.Column("last_at", Instant, nullable=False),
        sa.Column("last_status", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("app_id", "function_id", "hour", name=op.f("pk_function_usage")),
    )
    op.create_table(
        "function_webhooks",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("function_id", _ID, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("provider", sa.String(20), nullable=False),
        sa.Column("request", Json, nullable=False),
        sa.Column("status", sa.String(12), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("runs_until", Instant),
        sa.Column("answer", Json),
        sa.Column("error", sa.Text()),
        sa.Column("duplicates", sa.Integer(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("ended_at", Instant),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_function_webhooks")),
        sa.UniqueConstraint(
            "app_id", "function_id", "digest", name=op.f("uq_function_webhooks_app_id_function_id_digest")
        ),
    )
    op.create_index("ix_function_webhooks_created_at", "function_webhooks", ["created_at"])
    op.create_table(
        "function_claims",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("scope", sa.String(255), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("expires_at", Instant),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "scope", "key", name=op.f("pk_function_claims")),
    )
    op.create_table(
        "function_steps",
        sa.Column("app_id", _ID, nullable=False),
        sa.Column("invocation_id", _ID, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("result", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "invocation_id", "name", name=op.f("pk_function_steps")),
    )
    op.create_index("ix_function_steps_created_at", "function_steps", ["created_at"])
