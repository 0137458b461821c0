"""Revision 0083 puts the app first in the keys of runs, while workers of the version before go on without it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, select

from baobab.runtime.agents import tables
from baobab.storage.sql import migrate as migrating
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.statements import Statements
from tests.backends import ACTIVE_BACKEND, PostgresBackend
from tests.storage.test_migrations import migrate_to

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
_OF_RUNS = (tables.events, tables.stream_tokens, tables.live_texts)
_OF_CHECKPOINTS = (tables.checkpoints, tables.pieces, tables.writes)
FILLED = (*_OF_RUNS, *_OF_CHECKPOINTS, tables.messages, tables.counts)

# The statements of the version before, as it sends them.
_UPSERT_CHECKPOINT = (
    "INSERT INTO agent_checkpoints (thread_id, namespace, id, parent_id, checkpoint, about) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (thread_id, namespace, id) DO UPDATE SET parent_id = excluded.parent_id,"
    " checkpoint = excluded.checkpoint, about = excluded.about"
)
_INSERT_PIECE = (
    "INSERT INTO agent_pieces (thread_id, digest, text) VALUES (?, ?, ?) ON CONFLICT (thread_id, digest) DO NOTHING"
)
_UPSERT_WRITE = (
    "INSERT INTO agent_writes (thread_id, namespace, checkpoint_id, task_id, position, channel, value, task_path)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread_id, namespace, checkpoint_id, task_id, position) DO"
    " UPDATE SET channel = excluded.channel, value = excluded.value, task_path = excluded.task_path"
)
_INSERT_EVENT = "INSERT INTO agent_events (run_id, seq, type, payload, subject, created_at) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_THREAD = (
    "INSERT INTO agent_threads (id, app_id, agent_id, person, name, last_position, created_at, updated_at)"
    " VALUES (?, ?, ?, ?, ?, 0, ?, ?) ON CONFLICT (agent_id, person, name) DO NOTHING"
)
_INSERT_MESSAGE = (
    "INSERT INTO agent_messages (thread, position, node_id, turn, run_id, message, characters, tainted, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPSERT_LIVE_TEXT = (
    "INSERT INTO agent_live_texts (run_id, node_id, step, attempt, is_output, has_ended, length, text)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET node_id = excluded.node_id,"
    " step = excluded.step, attempt = excluded.attempt, is_output = excluded.is_output,"
    " has_ended = excluded.has_ended, length = excluded.length, text = excluded.text"
)
_COUNT = (
    "INSERT INTO agent_run_counts (agent_id, subject, hour, started) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (agent_id, subject, hour) DO UPDATE SET started = (agent_run_counts.started + ?)"
    " RETURNING agent_run_counts.started"
)
_INSERT_TOKEN = "INSERT INTO agent_stream_tokens (digest, run_id, expires_at) VALUES (?, ?, ?)"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """A database of the version before."""
    backend = ACTIVE_BACKEND[0]
    url = backend.create_empty() if isinstance(backend, PostgresBackend) else f"sqlite:///{tmp_path / 'old.db'}"
    database = database_at(url)
    await database.open()
    await migrate_to(database, "0080")
    yield database
    await database.close()


def insert_row(statements: Statements, table: str, suffix: str = "", /, **values: Any) -> None:
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    statements.rows(f"INSERT INTO {table} ({columns}) VALUES ({marks}){suffix}", *values.values())  # noqa: S608 - our names


def insert_agent(statements: Statements, agent_id: str, app_id: str) -> None:
    settings: dict[str, Any] = {"graph_spec": "{}", "status": "active", "visibility": "private", "dedupe_window": 0}
    settings |= {"safety_acknowledged": False, "taint_checks": True}
    arguments = {"id": agent_id, "app_id": app_id, "name": "a"}
    insert_row(statements, "agents", **arguments, **settings, created_at=AT, updated_at=AT)


def insert_run(statements: Statements, run_id: str, app_id: str, **others: Any) -> None:
    values: dict[str, Any] = {"id": run_id, "app_id": app_id, "agent_id": f"agent of {app_id}", "agent": "a"}
    values |= {
        "graph_spec": "{}",
        "taint_checks": True,
        "status": "queued",
        "input": "{}",
        "caller_kind": "key",
        "caller": "{}",
    }
    values |= {"subject": "", "person": "", "organisation_id": "o", "account_id": "", "last_seq": 0}
    values |= {"active_seconds": 0.0, "cost": 0, "prompt_tokens": 0, "completion_tokens": 0, "tainted": False}
    values |= {"payload_hash": "", "depth": 0, "created_at": AT, **others}
    insert_row(statements, "agent_runs", " ON CONFLICT (id) DO NOTHING", **values)


def insert_checkpoint(statements: Statements, run_id: str, text: str = "{}") -> None:
    statements.insert_many(_INSERT_PIECE, [(run_id, "digest", text)])
    statements.insert_many(_UPSERT_CHECKPOINT, [(run_id, "", "1", None, text, "{}")])
    statements.rows(_UPSERT_WRITE, run_id, "", "1", "task", -1, "c", text, "")


def write_as_before(statements: Statements, app_id: str, run_id: str, *, times: int = 1) -> None:
    """Writes all that a run of the version before writes. times: how often what replaces itself is written."""
    insert_run(statements, run_id, app_id)
    insert_run(statements, run_id, app_id)
    events = [(run_id, seq, "run_start", "{}", None, AT) for seq in (1, 2)]
    statements.insert_many(_INSERT_EVENT, events)
    for _ in range(times):
        insert_checkpoint(statements, run_id)
        statements.rows(_UPSERT_LIVE_TEXT, run_id, "n", 1, 1, *(True, False), 0, "")
        statements.rows(_COUNT, f"agent of {app_id}", run_id, 1, 1, 1)
        statements.rows(_INSERT_THREAD, f"t {run_id}", app_id, f"agent of {app_id}", "p", run_id, AT, AT)
    messages = [(f"t {run_id}", position, "n", 1, run_id, "{}", 2, False, AT) for position in (1, 2)]
    statements.insert_many(_INSERT_MESSAGE, messages)
    statements.rows(_INSERT_TOKEN, f"token of {run_id}", run_id, AT)


def write_first_rows(statements: Statements) -> None:
    for app_id in ("app_1", "app_2"):
        insert_agent(statements, f"agent of {app_id}", app_id)
        write_as_before(statements, app_id, f"old run of {app_id}")
    calls: dict[str, Any] = {"app_id": "app_1", "run_id": "old run of app_1", "step": 1, "node_id": "n", "prompt": "[]"}
    tokens = {"left_out": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0, "milliseconds": 0}
    insert_row(statements, "agent_model_calls", **calls, **tokens, created_at=AT)
    # What a run that is gone has left.
    insert_checkpoint(statements, "gone")
    statements.rows(_COUNT, "gone", "", 1, 1, 1)


async def read_apps(database: Database, table: Table) -> list[tuple[str, ...]]:
    """Returns the app of each row, with what the row belongs to."""
    of = next(table.c[name] for name in ("run_id", "thread_id", "subject") if name in table.c)
    async with database.reading() as connection:
        return sorted(tuple(row) for row in (await connection.execute(select(table.c.app_id, of))).all())


async def test_rows_get_the_app_of_their_run_and_what_belongs_to_nothing_goes(database: Database) -> None:
    await database.transact(write_first_rows)
    await migrating.migrate(database)
    for table in FILLED:
        double = 2 if table in (tables.events, tables.messages) else 1
        runs = [(app_id, f"old run of {app_id}") for app_id in ("app_1", "app_2") for _ in range(double)]
        assert await read_apps(database, table) == runs, table.name
    assert await read_apps(database, tables.model_calls) == [("app_1", "old run of app_1")]


async def test_what_workers_of_the_version_before_write_gets_the_app(database: Database) -> None:
    await database.transact(write_first_rows)
    await migrating.migrate(database)
    await database.transact(partial(write_as_before, app_id="app_1", run_id="new run", times=2))
    for table in FILLED:
        rows = [row for row in await read_apps(database, table) if row[1] == "new run"]
        assert rows == [("app_1", "new run")] * (2 if table in (tables.events, tables.messages) else 1), table.name
    async with database.reading() as connection:
        query = select(tables.counts.c.started).where(tables.counts.c.subject == "new run")
        assert (await connection.execute(query)).scalar_one() == 2


async def test_a_fork_that_a_worker_of_the_version_before_starts_gets_the_app(database: Database) -> None:
    await database.transact(write_first_rows)
    await migrating.migrate(database)

    def fork(statements: Statements) -> None:
        # That version stored the checkpoint first.
        insert_checkpoint(statements, "fork")
        insert_run(statements, "fork", "app_2", forked_from="old run of app_2", forked_step=1)
        insert_checkpoint(statements, "fork", '{"changed": true}')

    await database.transact(fork)
    for table in _OF_CHECKPOINTS:
        assert ("app_2", "fork") in await read_apps(database, table), table.name


async def test_a_run_that_a_worker_of_the_version_before_erases_leaves_nothing(database: Database) -> None:
    await database.transact(write_first_rows)
    await migrating.migrate(database)

    def erase(statements: Statements) -> None:
        ids = ["old run of app_1", "old run of app_2"]
        statements.rows("UPDATE agent_runs SET finished_at = ? WHERE id = ?", AT, ids[0])
        deleting = "DELETE FROM agent_runs WHERE id IN ? AND finished_at IS NOT NULL RETURNING id"
        assert statements.rows(deleting, ids) == [(ids[0],)]
        for table in ("agent_events", "agent_stream_tokens", "agent_live_texts", "agent_model_calls"):
            statements.rows(f"DELETE FROM {table} WHERE run_id IN ?", ids[:1])  # noqa: S608 - our names
        for table in ("agent_writes", "agent_checkpoints", "agent_pieces"):
            statements.rows(f"DELETE FROM {table} WHERE thread_id IN ?", ids[:1])  # noqa: S608 - our names
        statements.rows("DELETE FROM agent_threads WHERE name = ?", ids[0])

    await database.transact(erase)
    for table in (*_OF_RUNS, *_OF_CHECKPOINTS, tables.messages, tables.model_calls):
        assert {app_id for app_id, _ in await read_apps(database, table)} <= {"app_2"}, table.name
