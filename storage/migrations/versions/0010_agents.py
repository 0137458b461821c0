"""Agents, their runs, and what those have done."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("run_id", sa.String(length=36), nullable=True))
    op.add_column("approvals", sa.Column("tainted", sa.Boolean(), nullable=True))
    op.add_column("approvals", sa.Column("edited", sa.Boolean(), nullable=True))
    op.create_table(
        "agent_checkpoints",
        sa.Column("thread_id", sa.String(length=80), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("id", sa.String(length=60), nullable=False),
        sa.Column("parent_id", sa.String(length=60), nullable=True),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.Column("about", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "namespace", "id", name=op.f("pk_agent_checkpoints")),
    )
    op.create_table(
        "agent_run_counts",
        sa.Column("agent_id", sa.String(length=36), nullable=False),
        sa.Column("subject", sa.String(length=120), nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", "subject", "hour", name=op.f("pk_agent_run_counts")),
    )
    op.create_table(
        "agent_runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("agent_id", sa.String(length=36), nullable=False),
        sa.Column("agent", sa.String(length=100), nullable=False),
        sa.Column("graph_spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("taint_checks", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("input", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("output", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("said", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("caller_kind", sa.String(length=20), nullable=False),
        sa.Column("caller", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("subject", sa.String(length=80), nullable=False),
        sa.Column("caller_user_id", sa.String(length=80), nullable=True),
        sa.Column("caller_ip", sa.String(length=60), nullable=True),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=200), nullable=True),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("active_seconds", sa.Float(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("tainted", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=128), nullable=True),
        sa.Column("payload_hash", sa.String(length=64), nullable=False),
        sa.Column("thread_id", sa.String(length=128), nullable=True),
        sa.Column("forked_from", sa.String(length=36), nullable=True),
        sa.Column("forked_step", sa.Integer(), nullable=True),
        sa.Column("parent_run_id", sa.String(length=36), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("webhook_url", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_runs")),
    )
    op.create_index("ix_agent_runs_agent_id_created_at", "agent_runs", ["agent_id", "created_at"], unique=False)
    op.create_index("ix_agent_runs_agent_id_status", "agent_runs", ["agent_id", "status"], unique=False)
    op.create_index("ix_agent_runs_app_id_created_at", "agent_runs", ["app_id", "created_at"], unique=False)
    op.create_index("ix_agent_runs_parent_run_id", "agent_runs", ["parent_run_id"], unique=False)
    is_unended = sa.text("finished_at IS NULL")
    op.create_index(
        "ix_agent_runs_unended", "agent_runs", ["created_at"], sqlite_where=is_unended, postgresql_where=is_unended
    )
    op.create_table(
        "agent_writes",
        sa.Column("thread_id", sa.String(length=80), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=60), nullable=False),
        sa.Column("task_id", sa.String(length=60), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("channel", sa.String(length=100), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("task_path", sa.String(length=400), nullable=False),
        sa.PrimaryKeyConstraint(
            "thread_id", "namespace", "checkpoint_id", "task_id", "position", name=op.f("pk_agent_writes")
        ),
    )
    op.create_table(
        "agents",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("graph_spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("default_model", sa.String(length=200), nullable=True),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("visibility", sa.String(length=20), nullable=False),
        sa.Column("max_runs_per_user_per_hour", sa.Integer(), nullable=True),
        sa.Column("max_runs_per_ip_per_hour", sa.Integer(), nullable=True),
        sa.Column("max_runs_per_app_per_hour", sa.Integer(), nullable=True),
        sa.Column("daily_budget", sa.BigInteger(), nullable=True),
        sa.Column("max_concurrent_runs", sa.Integer(), nullable=True),
        sa.Column("dedupe_window", sa.Integer(), nullable=False),
        sa.Column("safety_acknowledged", sa.Boolean(), nullable=False),
        sa.Column("taint_checks", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    op.create_index(
        "uq_agents_app_id_name",
        "agents",
        ["app_id", "name"],
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_table(
        "agent_events",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("type", sa.String(length=30), nullable=False),
        sa.Column("payload", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("subject", sa.String(length=100), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["agent_runs.id"], name=op.f("fk_agent_events_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_agent_events")),
    )
    op.create_table(
        "agent_stream_tokens",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["agent_runs.id"], name=op.f("fk_agent_stream_tokens_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_agent_stream_tokens")),
    )
