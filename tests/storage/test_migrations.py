"""Migrations: what an earlier version had begun goes on in this one."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from baobab.storage import migrate as migrating
from baobab.storage.database import Database
from baobab.storage.databases import database_at
from tests.columns import CHOSEN, Grown
from tests.jobs import events, jobs

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty database."""
    column = CHOSEN[0]
    return column.empty() if isinstance(column, Grown) else f"sqlite:///{tmp_path / 'old.db'}"


async def at_revision(database: Database, revision: str) -> None:
    def upgrade(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(migrating.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    async with database.writing() as connection:
        await connection.run_sync(upgrade)


async def test_deleted_apps_and_approved_calls_that_were_left_become_jobs(url: str) -> None:
    database = database_at(url)
    await database.open()
    await at_revision(database, "0003")
    left = {"at": AT if url.startswith("postgresql") else AT.replace(tzinfo=None).isoformat(" ") + ".000000"}
    async with database.writing() as connection:
        await connection.execute(text("INSERT INTO app_tombstones VALUES ('app_gone', 'local', :at)"), left)
        await connection.execute(
            text(
                "INSERT INTO approvals (id, organisation_id, account_id, proposer, caller, tool, tool_version, effect,"
                " door, request_id, arguments, arguments_digest, summary, status, created_at, expires_at, decided_at,"
                " attempts) VALUES ('appr_1', 'o', 'a', 'key:k', '{}', 'kv_put', 'v', 'write', 'rest', 'r', 's', 'd',"
                " 'told', 'approved', :at, :at, :at, 2)"
            ),
            left,
        )
    assert await migrating.migrate(database) == migrating.revisions()[3:]
    async with database.reading() as connection:
        made = {row.kind: row for row in (await connection.execute(jobs.select())).all()}
        (event,) = (await connection.execute(events.select())).all()
    await database.close()
    assert (event.type, event.app_id, event.data) == ("app.deleted", "app_gone", {"region": "local"})
    assert made["apps_purge"].arguments == {"event_id": event.id}
    approved = made["approvals_execute"]
    assert (approved.id, approved.attempts, approved.due_at) == ("approval:appr_1", 2, AT)
    assert approved.arguments == {"approval_id": "appr_1"}
