"""Durable jobs, events and moves of apps. What was left of deleted apps, and approved calls that wait, become jobs."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    jobs = op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("arguments", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("held_by", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    is_unfinished = sa.text("finished_at IS NULL")
    op.create_index("ix_jobs_due", "jobs", ["due_at"], sqlite_where=is_unfinished, postgresql_where=is_unfinished)
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])
    events = op.create_table(
        "events",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=True),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_at", "events", ["at"])
    op.create_table(
        "app_moves",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("source_region", sa.String(length=40), nullable=False),
        sa.Column("dest_region", sa.String(length=40), nullable=False),
        sa.Column("current_step", sa.String(length=40), nullable=False),
        sa.Column("ending", sa.String(length=20), nullable=True),
        sa.Column("source_replica_state", sa.String(length=20), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("retry_count", sa.Integer(), nullable=False),
        sa.Column("progress", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("step_started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_app_moves")),
    )
    op.create_index("ix_apps_organisation_id_created_at_id", "apps", ["organisation_id", "created_at", "id"])
    op.create_index("ix_app_moves_app_id", "app_moves", ["app_id"])
    op.create_index("ix_app_moves_organisation_id", "app_moves", ["organisation_id"])
    underway = sa.text("completed_at IS NULL")
    op.create_index(
        "uq_app_moves_underway",
        "app_moves",
        ["app_id"],
        unique=True,
        sqlite_where=underway,
        postgresql_where=underway,
    )
    _approved_calls(jobs)
    op.drop_index("ix_approvals_status_lease_until", "approvals")
    with op.batch_alter_table("approvals") as approvals:
        for column in ("lease_by", "lease_until", "attempts"):
            approvals.drop_column(column)
    op.create_index("ix_approvals_status_expires_at", "approvals", ["status", "expires_at"])
    _deleted_apps(jobs, events)
    op.drop_table("app_tombstones")


def _approved_calls(jobs: sa.Table) -> None:
    """What was approved and not executed yet."""
    instant = sa.DateTime(timezone=True)
    approvals = sa.table(
        "approvals",
        sa.column("id"),
        sa.column("status"),
        sa.column("decided_at", instant),
        sa.column("attempts", sa.Integer),
    )
    for row in op.get_bind().execute(sa.select(approvals).where(approvals.c.status == "approved")).all():
        job = {"id": f"approval:{row.id}", "kind": "approvals_execute", "arguments": {"approval_id": row.id}}
        times = {"due_at": row.decided_at, "created_at": row.decided_at}
        op.bulk_insert(jobs, [{**job, **times, "epoch": row.attempts, "attempts": row.attempts}])


def _deleted_apps(jobs: sa.Table, events: sa.Table) -> None:
    """The last purge of each, which was remembered in a table of its own, becomes a job."""
    instant = sa.DateTime(timezone=True)
    tombstones = sa.table("app_tombstones", sa.column("app_id"), sa.column("region"), sa.column("deleted_at", instant))
    for row in op.get_bind().execute(sa.select(tombstones)).all():
        event_id = str(uuid.uuid4())
        event = {"id": event_id, "type": "app.deleted", "at": row.deleted_at, "app_id": row.app_id}
        op.bulk_insert(events, [{**event, "data": {"region": row.region}}])
        job = {"id": f"apps_purge:{event_id}", "kind": "apps_purge", "arguments": {"event_id": event_id}}
        times = {"due_at": row.deleted_at, "created_at": row.deleted_at}
        op.bulk_insert(jobs, [{**job, **times, "epoch": 0, "attempts": 0}])
