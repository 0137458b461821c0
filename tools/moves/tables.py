"""The table of moves, and the steps of a move."""

from typing import Literal, get_args

from sqlalchemy import Column, Index, Integer, String, Table, Text, text

from baobab.storage.sql.tables import Instant, Json, metadata

Step = Literal[
    "requested",
    "reserving_dest",
    "blocking_writes",
    "dumping_data",
    "restoring_data",
    "copying_blobs",
    "copying_runtime",
    "flipping_routing",
    "setting_up_reverse_replication",
    "unblocking_writes",
    "completed",
    "aborted",
    "failed",
]
STEPS: tuple[Step, ...] = get_args(Step)
BEFORE_FLIP = STEPS[: STEPS.index("flipping_routing") + 1]
"""During these steps requests go to the source, and the move can still be undone."""
TEARING_DOWN = "tearing_down"
"""The state of a replica that is being removed: callers see it as removed, but no app may move there yet."""

moves_table = Table(
    "app_moves",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("app_id", String(36), nullable=False, index=True),
    Column("organisation_id", String(36), nullable=False, index=True),
    Column("source_region", String(40), nullable=False),
    Column("dest_region", String(40), nullable=False),
    Column("current_step", String(40), nullable=False),
    # How the move is to end if it is not to be completed: `aborted` or `failed`.
    Column("ending", String(20)),
    Column("source_replica_state", String(20), nullable=False),
    Column("last_error", Text),
    Column("retry_count", Integer, nullable=False),
    Column("progress", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("step_started_at", Instant, nullable=False),
    Column("completed_at", Instant),
    # An app has one move at a time.
    Index(
        "uq_app_moves_underway",
        "app_id",
        unique=True,
        sqlite_where=text("completed_at IS NULL"),
        postgresql_where=text("completed_at IS NULL"),
    ),
)
