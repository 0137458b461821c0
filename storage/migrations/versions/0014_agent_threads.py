"""Conversations of agents are a thing of their own, and belong to persons.

What completed runs remember is carried over: of each thread the latest that each node remembers, without its system
prompts. What visitors said is not: they were known by addresses only, which others may share.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_PERSON = (
    "UPDATE agent_runs SET person = CASE caller_kind WHEN 'end_user' THEN subject"
    " WHEN 'anonymous' THEN substr('visitor:' || id, 1, 80) ELSE 'account:' || account_id END"
)
_THREADS = sa.text(
    "SELECT agent_id, person, thread_id, MIN(app_id), MIN(created_at), MAX(finished_at) FROM agent_runs"
    " WHERE thread_id IS NOT NULL AND status = 'completed' AND caller_kind <> 'anonymous'"
    " GROUP BY agent_id, person, thread_id"
)
_RUNS = sa.text(
    "SELECT id FROM agent_runs WHERE agent_id = :agent AND person = :person AND thread_id = :name"
    " AND status = 'completed' ORDER BY finished_at DESC"
)


def upgrade() -> None:
    op.create_table(
        "agent_threads",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("app_id", sa.String(length=36), nullable=False),
        sa.Column("agent_id", sa.String(length=36), nullable=False),
        sa.Column("person", sa.String(length=80), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("last_position", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_threads")),
    )
    op.create_index(
        "uq_agent_threads_agent_id_person_name", "agent_threads", ["agent_id", "person", "name"], unique=True
    )
    op.create_index("ix_agent_threads_app_id_person", "agent_threads", ["app_id", "person"])
    op.create_table(
        "agent_messages",
        sa.Column("thread", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("message", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("characters", sa.Integer(), nullable=False),
        sa.Column("tainted", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread"], ["agent_threads.id"], name=op.f("fk_agent_messages_thread"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread", "position", name=op.f("pk_agent_messages")),
    )
    op.create_index("ix_agent_messages_thread_node_id_position", "agent_messages", ["thread", "node_id", "position"])
    op.create_index("ix_agent_messages_run_id", "agent_messages", ["run_id"])
    op.add_column("agent_runs", sa.Column("person", sa.String(length=80), nullable=False, server_default=""))
    op.execute(_PERSON)
    op.create_index("ix_agent_runs_app_id_person", "agent_runs", ["app_id", "person"])
    has_idempotency_key = sa.text("idempotency_key IS NOT NULL")
    op.create_index(
        "ix_agent_runs_agent_id_idempotency_key",
        "agent_runs",
        ["agent_id", "idempotency_key"],
        sqlite_where=has_idempotency_key,
        postgresql_where=has_idempotency_key,
    )
    _carry_over(op.get_bind())
    op.drop_column("agent_runs", "said")


def _carry_over(connection: sa.Connection) -> None:
    runs = sa.table("agent_runs", *map(sa.column, ("id", "graph_spec", "said", "tainted")))
    threads = sa.table(
        "agent_threads",
        *map(sa.column, ("id", "app_id", "agent_id", "person", "name", "last_position", "created_at", "updated_at")),
    )
    names = ("thread", "position", "node_id", "turn", "run_id", "message", "characters", "tainted", "created_at")
    messages = sa.table("agent_messages", *map(sa.column, names))
    json_text = sa.JSON(none_as_null=True)
    for agent, person, name, app_id, created_at, updated_at in connection.execute(_THREADS).all():
        thread, position = str(uuid4()), 0
        rows: list[dict[str, Any]] = []
        ids = connection.execute(_RUNS, {"agent": agent, "person": person, "name": name}).scalars().all()
        remaining_nodes: set[str] | None = None
        for run_id in ids:
            read = sa.select(
                sa.type_coerce(runs.c.graph_spec, json_text).label("graph"),
                sa.type_coerce(runs.c.said, json_text).label("said"),
                runs.c.tainted,
            )
            run = connection.execute(read.where(runs.c.id == run_id)).one()
            if remaining_nodes is None:
                remaining_nodes = {key for key, node in run.graph["nodes"].items() if node.get("remembers")}
            for node_id in sorted(remaining_nodes & set(run.said or {})):
                remaining_nodes.discard(node_id)
                for turn in _turns(run.said[node_id]):
                    first = position + 1
                    for message in turn:
                        position += 1
                        of = (thread, position, node_id, first, run_id, message)
                        text = json.dumps(message, ensure_ascii=False)
                        rows.append(dict(zip(names, (*of, len(text), bool(run.tainted), updated_at), strict=True)))
            if not remaining_nodes:
                break
        if rows:
            thread_values = (thread, app_id, agent, person, name, position, created_at, updated_at)
            connection.execute(threads.insert(), dict(zip(threads.c.keys(), thread_values, strict=True)))
            message_insert = messages.insert().values(
                {**{key: sa.bindparam(key) for key in names}, "message": sa.bindparam("message", type_=json_text)}
            )
            connection.execute(message_insert, rows)


def _turns(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """A conversation without its system prompts, each turn from what the user said."""
    turn: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and turn:
            yield turn
            turn = []
        if message["role"] != "system":
            turn.append(message)
    if turn:
        yield turn
