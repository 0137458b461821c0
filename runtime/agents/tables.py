"""The tables of agents and their runs, in the database of the app's region."""

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
    and_,
    text,
)
from sqlalchemy.sql.schema import SchemaItem

from baobab.storage.sql.statements import Statements
from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

Write = Callable[[Statements], None]
"""A function that writes within a transaction."""

agents = Table(
    "agents",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # Indexed for workers of the version before revision 0081, who find rows by it alone.
    Column("id", String(36), primary_key=True, index=True),
    Column("name", String(100), nullable=False),
    Column("display_name", String(200)),
    Column("description", Text),
    Column("graph_spec", Json, nullable=False),
    Column("default_model", String(200)),
    Column("status", String(10), nullable=False),
    Column("visibility", String(20), nullable=False),
    Column("max_runs_per_user_per_hour", Integer),
    Column("max_runs_per_ip_per_hour", Integer),
    Column("max_runs_per_app_per_hour", Integer),
    Column("daily_budget", BigInteger),  # nano-dollars
    Column("max_concurrent_runs", Integer),
    # In seconds; -1 for what follows from the visibility.
    Column("dedupe_window", Integer, nullable=False),
    Column("safety_acknowledged", Boolean, nullable=False),
    Column("taint_checks", Boolean, nullable=False),
    # For how long ended runs are kept; null for the installation's setting.
    Column("retention_days", Integer),
    # Who may approve the calls of nodes that name nobody (tools/core/auth/deciders.py).
    Column("approvers", Json),
    # Which nodes lend the app's right to their calls, with who allowed it and when (app_rights.py).
    Column("app_rights", Json),
    Column("created_by", String(36)),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("deleted_at", Instant),
    Index(
        "uq_agents_app_id_name",
        "app_id",
        "name",
        unique=True,
        sqlite_where=text("deleted_at IS NULL"),
        postgresql_where=text("deleted_at IS NULL"),
    ),
)

runs = Table(
    "agent_runs",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("id", String(36), primary_key=True),
    Column("agent_id", String(36), nullable=False),
    Column("agent", String(100), nullable=False),
    # Copied from the agent when the run was created: later changes of the agent do not affect the run.
    Column("graph_spec", Json, nullable=False),
    Column("model", String(200)),
    Column("taint_checks", Boolean, nullable=False),
    Column("approvers", Json),
    Column("status", String(20), nullable=False),
    Column("input", Json, nullable=False),
    Column("output", Json),
    Column("error", Json),
    # Which answer of a model was cut or lost: `reason`, `node_id` and `step`; null where none was.
    Column("incomplete", Json),
    # Who started the run, in the form of tools/core/auth/proposers.py; `subject` is the same as one word.
    Column("caller_kind", String(20), nullable=False),
    Column("caller", Json, nullable=False),
    Column("subject", String(80), nullable=False),
    # Whose threads the run uses, whichever credential they come with: see tools/agents/run_ownership.py.
    Column("person", String(80), nullable=False),
    Column("caller_user_id", String(80)),
    Column("caller_ip", String(60)),
    Column("organisation_id", String(36), nullable=False),
    Column("account_id", String(36), nullable=False),
    # Only the job of this id writes to the run.
    Column("job_id", String(200)),
    Column("last_seq", Integer, nullable=False),
    Column("active_seconds", Float, nullable=False),
    Column("cost", BigInteger, nullable=False),  # nano-dollars
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("tainted", Boolean, nullable=False),
    Column("idempotency_key", String(128)),
    Column("payload_hash", String(64), nullable=False),
    Column("thread_id", String(128)),
    # The run and the step of it that this one was forked from.
    Column("forked_from", String(36)),
    Column("forked_step", Integer),
    # The parent run, and the number of ancestors.
    Column("parent_run_id", String(36)),
    Column("depth", Integer, nullable=False),
    Column("webhook_url", Text),
    # The state of the webhook's delivery; null before it begins.
    Column("webhook_delivery", Json),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("paused_until", Instant),
    Column("finished_at", Instant),
    # Jobs know only the id of a run. It is unique for workers of the version before revision 0083, who name it as the
    # target of ON CONFLICT.
    Index("ix_agent_runs_id", "id", unique=True),
    Index("ix_agent_runs_agent_id_created_at", "agent_id", "created_at"),
    Index("ix_agent_runs_app_id_created_at", "app_id", "created_at"),
    Index("ix_agent_runs_agent_id_status", "agent_id", "status"),
    Index("ix_agent_runs_parent_run_id", "parent_run_id"),
    Index("ix_agent_runs_app_id_person", "app_id", "person"),
    Index(
        "ix_agent_runs_agent_id_idempotency_key",
        "agent_id",
        "idempotency_key",
        # With it SQLite does not read the runs of the agent one by one, the latest first.
        "created_at",
        sqlite_where=text("idempotency_key IS NOT NULL"),
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    Index(
        "ix_agent_runs_agent_id_subject",
        "agent_id",
        "subject",
        "created_at",
        sqlite_where=text("idempotency_key IS NULL"),
        postgresql_where=text("idempotency_key IS NULL"),
    ),
)
AGENT_OF_RUN = and_(agents.c.app_id == runs.c.app_id, agents.c.id == runs.c.agent_id)
"""The condition for joining a run with its agent."""
UNENDED = runs.c.finished_at.is_(None)
_ENDED_ROWS = runs.c.finished_at.is_not(None)
Index("ix_agent_runs_finished_at", runs.c.finished_at, sqlite_where=_ENDED_ROWS, postgresql_where=_ENDED_ROWS)
Index("ix_agent_runs_unended", runs.c.created_at, sqlite_where=UNENDED, postgresql_where=UNENDED)
# Used at every start to count the runs that have not ended; those that have may be very many.
Index(
    "ix_agent_runs_under_way",
    runs.c.app_id,
    runs.c.agent_id,
    runs.c.status,
    sqlite_where=UNENDED,
    postgresql_where=UNENDED,
)


def _run_foreign_key() -> SchemaItem:
    return ForeignKeyConstraint(["app_id", "run_id"], ["agent_runs.app_id", "agent_runs.id"], ondelete="CASCADE")


def _former_key(table: str, *columns: str, unique: bool = True) -> SchemaItem:
    """Returns the index of what was the key before revision 0083.

    Workers of the version before find rows by it and name it as the target of ON CONFLICT. The next version drops it.
    """
    return Index(f"ix_{table}_former_key", *columns, unique=unique)


events = Table(
    "agent_events",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("run_id", String(36), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("type", String(30), nullable=False),
    Column("payload", Json, nullable=False),
    # A run has one event of each subject, even if a step is repeated after a crash.
    Column("subject", String(100)),
    Column("created_at", Instant, nullable=False),
    _run_foreign_key(),
    _former_key("agent_events", "run_id", "seq", unique=False),
)

checkpoints = Table(
    "agent_checkpoints",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # The id of the run.
    Column("thread_id", String(80), primary_key=True),
    Column("namespace", String(200), primary_key=True),
    Column("id", String(60), primary_key=True),
    Column("parent_id", String(60)),
    Column("checkpoint", Text, nullable=False),
    Column("about", Json, nullable=False),
    _former_key("agent_checkpoints", "thread_id", "namespace", "id"),
)

# Large values of a run's checkpoints, by the digest of their text: see pieces.py.
pieces = Table(
    "agent_pieces",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # The id of the run.
    Column("thread_id", String(80), primary_key=True),
    Column("digest", String(40), primary_key=True),
    Column("text", Text, nullable=False),
    _former_key("agent_pieces", "thread_id", "digest"),
)

writes = Table(
    "agent_writes",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # The id of the run.
    Column("thread_id", String(80), primary_key=True),
    Column("namespace", String(200), primary_key=True),
    Column("checkpoint_id", String(60), primary_key=True),
    Column("task_id", String(60), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("channel", String(100), nullable=False),
    Column("value", Text, nullable=False),
    Column("task_path", String(400), nullable=False),
    _former_key("agent_writes", "thread_id", "namespace", "checkpoint_id", "task_id", "position"),
)

threads = Table(
    "agent_threads",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("id", String(36), primary_key=True),
    Column("agent_id", String(36), nullable=False),
    Column("person", String(80), nullable=False),
    # The `thread_id` of its runs.
    Column("name", String(128), nullable=False),
    # How many messages it has ever had. Adding messages updates this, which locks the row.
    Column("last_position", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("uq_agent_threads_agent_id_person_name", "agent_id", "person", "name", unique=True),
    Index("ix_agent_threads_app_id_person", "app_id", "person"),
    _former_key("agent_threads", "id", unique=False),
)

messages = Table(
    "agent_messages",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("thread", String(36), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("node_id", String(64), nullable=False),
    # The position of the first message of its turn: a turn is kept, read and trimmed as a whole.
    Column("turn", Integer, nullable=False),
    Column("run_id", String(36), nullable=False),
    Column("message", Json, nullable=False),
    Column("characters", Integer, nullable=False),
    # Whether the run that added it had read text from outside.
    Column("tainted", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Index("ix_agent_messages_thread_node_id_position", "thread", "node_id", "position"),
    Index("ix_agent_messages_run_id", "run_id"),
    ForeignKeyConstraint(["app_id", "thread"], ["agent_threads.app_id", "agent_threads.id"], ondelete="CASCADE"),
)

counts = Table(
    "agent_run_counts",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("agent_id", String(36), primary_key=True),
    Column("subject", String(120), primary_key=True),
    Column("hour", Integer, primary_key=True, autoincrement=False),
    Column("started", Integer, nullable=False),
    _former_key("agent_run_counts", "agent_id", "subject", "hour"),
)

stream_tokens = Table(
    "agent_stream_tokens",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("run_id", String(36), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("expires_at", Instant, nullable=False),
    Column("opened_at", Instant),
    _run_foreign_key(),
)

# What models were asked and answered, by step: bounded, and erased with the run (model_calls.py).
model_calls = Table(
    "agent_model_calls",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # Indexed for workers of the version before revision 0083, who erase by it alone.
    Column("run_id", String(36), primary_key=True, index=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("node_id", String(64), nullable=False),
    Column("model", String(200)),
    Column("prompt", Json, nullable=False),
    Column("left_out", Integer, nullable=False),
    Column("answer", Json),
    Column("error", Text),
    Column("finish_reason", String(40)),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost", BigInteger, nullable=False),  # nano-dollars
    Column("milliseconds", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    _run_foreign_key(),
)

# A model's answer while it arrives, for readers in processes other than the one that executes the run.
live_texts = Table(
    "agent_live_texts",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("run_id", String(36), primary_key=True),
    Column("node_id", String(64), nullable=False),
    Column("step", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("is_output", Boolean, nullable=False),
    Column("has_ended", Boolean, nullable=False),
    Column("length", Integer, nullable=False),
    Column("text", Text, nullable=False),
    _run_foreign_key(),
    # Followers know only the id of a run. It is unique for workers of the version before revision 0083.
    Index("ix_agent_live_texts_run_id", "run_id", unique=True),
)

# The secret that signs webhooks of an app's runs, and for a while the earlier one, which signs them too.
webhook_secrets = Table(
    "agent_webhook_secrets",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("secret", Sealed, nullable=False),
    Column("earlier", Sealed),
    Column("earlier_until", Instant),
    Column("made_at", Instant, nullable=False),
)

ENDED = ("completed", "failed", "cancelled", "timed_out")
FROZEN = "frozen"
"""The `job_id` of runs that no job may execute, because their app is being moved or was moved a moment ago."""
