"""Migrations: what an earlier version had begun goes on in this one."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import JSON, Connection, DateTime, MetaData, Table, delete, insert, select, text, update

from baobab.runtime.agents.tables import messages, threads
from baobab.storage.sql import migrate as migrating
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.tables import build_upsert
from tests.backends import ACTIVE_BACKEND, PostgresBackend
from tests.jobs import events, jobs

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty database."""
    backend = ACTIVE_BACKEND[0]
    return backend.create_empty() if isinstance(backend, PostgresBackend) else f"sqlite:///{tmp_path / 'old.db'}"


async def migrate_to(database: Database, revision: str) -> None:
    def upgrade(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(migrating.__file__).parents[1] / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    async with database.writing() as connection:
        await connection.run_sync(upgrade)


async def test_deleted_apps_and_approved_calls_that_were_left_become_jobs(url: str) -> None:
    database = database_at(url)
    await database.open()
    await migrate_to(database, "0003")
    parameters = {"at": AT if url.startswith("postgresql") else AT.replace(tzinfo=None).isoformat(" ") + ".000000"}
    async with database.writing() as connection:
        await connection.execute(text("INSERT INTO app_tombstones VALUES ('app_gone', 'local', :at)"), parameters)
        await connection.execute(
            text(
                "INSERT INTO approvals (id, organisation_id, account_id, proposer, caller, tool, tool_version, effect,"
                " door, request_id, arguments, arguments_digest, summary, status, created_at, expires_at, decided_at,"
                " attempts) VALUES ('appr_1', 'o', 'a', 'key:k', '{}', 'kv_put', 'v', 'write', 'rest', 'r', 's', 'd',"
                " 'told', 'approved', :at, :at, :at, 2)"
            ),
            parameters,
        )
    assert await migrating.migrate(database) == migrating.list_revisions()[3:]
    async with database.reading() as connection:
        jobs_by_kind = {row.kind: row for row in (await connection.execute(jobs.select())).all()}
        (event,) = (await connection.execute(events.select())).all()
    await database.close()
    assert (event.type, event.app_id, event.data) == ("app.deleted", "app_gone", {"region": "local"})
    assert jobs_by_kind["apps_purge"].arguments == {"event_id": event.id}
    approvals_execute = jobs_by_kind["approvals_execute"]
    assert (approvals_execute.id, approvals_execute.attempts, approvals_execute.due_at) == ("approval:appr_1", 2, AT)
    assert approvals_execute.arguments == {"approval_id": "appr_1"}


async def test_what_completed_runs_remember_is_carried_over_without_system_prompts(url: str) -> None:
    database = database_at(url)
    await database.open()
    await migrate_to(database, "0012")
    say = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"}]
    say += [{"role": "assistant", "content": "first"}]
    later = [*say[:1], *say, {"role": "user", "content": "two"}, {"role": "assistant", "content": "second"}]
    nodes = {name: {"type": "llm", "remembers": True} for name in ("chat", "other")}
    runs_before = {
        "run_1": ("function", "key:old", {"chat": say}),
        "run_2": ("function", "key:old", {"chat": later}),
        "run_3": ("dashboard", "key:new", {"other": say}),
        "run_4": ("anonymous", "ip:192.0.2.1", {"chat": say}),
    }
    columns = (
        "id, app_id, agent_id, agent, graph_spec, taint_checks, status, input, said, caller_kind, caller, subject,"
        " organisation_id, account_id, last_seq, active_seconds, cost, prompt_tokens, completion_tokens, tainted,"
        " payload_hash, thread_id, depth, created_at, finished_at"
    )
    insertion = (
        f"INSERT INTO agent_runs ({columns}) VALUES (:id, 'app', 'agent', 'a', :graph, true, 'completed', '{{}}',"  # noqa: S608
        " :said, :kind, '{}', :subject, 'o', 'ada', 0, 0, 0, 0, 0, :tainted, '', 't', 0, :at, :at)"
    )
    async with database.writing() as connection:
        for number, (run_id, (kind, subject, said_messages)) in enumerate(runs_before.items()):
            at = AT + timedelta(minutes=number)
            parameters: dict[str, Any] = {
                "id": run_id,
                "graph": json.dumps({"nodes": nodes}),
                "said": json.dumps(said_messages),
                "kind": kind,
            }
            parameters |= {"subject": subject, "tainted": run_id == "run_3"}
            parameters["at"] = (
                at if url.startswith("postgresql") else at.replace(tzinfo=None).isoformat(" ") + ".000000"
            )
            await connection.execute(text(insertion), parameters)
    await migrating.migrate(database)
    async with database.reading() as connection:
        (thread,) = (await connection.execute(threads.select())).all()
        message_rows = (await connection.execute(messages.select().order_by(messages.c.position))).all()
    await database.close()
    assert (thread.person, thread.name, thread.last_position) == ("account:ada", "t", 6)
    assert [(row.node_id, row.turn, row.message["content"], row.tainted) for row in message_rows] == [
        ("other", 1, "one", True),
        ("other", 1, "first", True),
        ("chat", 3, "one", False),
        ("chat", 3, "first", False),
        ("chat", 5, "two", False),
        ("chat", 5, "second", False),
    ]


@pytest.mark.parametrize(
    ("name", "label"),
    [("agents", "display_name"), ("agent_tool_servers", "problem"), ("generation_jobs", "error")],
)
async def test_workers_of_the_version_before_use_rows_by_their_id_alone(url: str, name: str, label: str) -> None:
    database = database_at(url)
    await database.open()
    await migrate_to(database, "0080")
    async with database.reading() as connection:
        table = await connection.run_sync(lambda sync: Table(name, MetaData(), autoload_with=sync))
    assert [column.name for column in table.primary_key] == ["id"]
    ids = {"kept": "app_1", "new": "app_2"}
    rows = [_fill_row(table) | {"id": id_, "app_id": app_id, label: "old"} for id_, app_id in ids.items()]
    async with database.writing() as connection:
        await connection.execute(insert(table), rows[:1])
    await migrating.migrate(database)
    for row in rows:
        # Stores the second, and does nothing about the first, which is there.
        async with database.writing() as connection:
            await connection.execute(build_upsert(database.dialect, table).values(row).on_conflict_do_nothing())
    for id_ in ids:
        async with database.writing() as connection:
            change = update(table).where(table.c.id == id_).values({label: id_})
            assert (await connection.execute(change)).rowcount == 1
    async with database.reading() as connection:
        columns = (table.c.id, table.c.app_id, table.c[label])
        found_rows = sorted(tuple(row) for row in (await connection.execute(select(*columns))).all())
        plan = await _explain(connection, database.dialect, f"SELECT app_id FROM {name} WHERE id = 'kept'")  # noqa: S608
    assert found_rows == [("kept", "app_1", "kept"), ("new", "app_2", "new")]
    assert f"ix_{name}_id" in plan
    async with database.writing() as connection:
        expired_ids = select(table.c.id).where(table.c.app_id == "app_1").limit(1)
        assert (await connection.execute(delete(table).where(table.c.id.in_(expired_ids)))).rowcount == 1
    await database.close()


def _fill_row(table: Table) -> dict[str, Any]:
    """Returns a value for each column that must have one."""
    kinds = {column.name: column.type for column in table.columns if not column.nullable}
    values: dict[str, Any] = {name: {} for name, kind in kinds.items() if isinstance(kind, JSON)}
    values |= {name: AT for name, kind in kinds.items() if isinstance(kind, DateTime)}
    return {name: kind.python_type() for name, kind in kinds.items() if name not in values} | values


async def _explain(connection: Any, dialect: str, query: str) -> str:
    if dialect == "sqlite":
        plan = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")).all()
    else:
        # With few rows it would read the whole table in any case.
        await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plan = (await connection.exec_driver_sql(f"EXPLAIN {query}")).all()
    return "\n".join(row[-1] for row in plan)
