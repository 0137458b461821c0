"""Several servers start at the same moment, on nothing at all or on what an older version left."""

import asyncio
import contextlib
import re
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from baobab.storage.sql import migrate
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import list_revisions, read_revision
from tests.crash.machines import Installation, open_session

SERVERS = 4
_KEY = re.compile(r"bb_sk_[A-Za-z0-9]{40}")
_NOTHING = "DROP SCHEMA IF EXISTS kv CASCADE", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public"


@pytest.fixture
async def here(tmp_path: Path) -> Installation:
    """An installation that was never started, and whose first key nobody has chosen."""
    installation = Installation.on_backend(tmp_path, bootstrap=False)
    if installation.is_on_postgres:
        database = database_at(installation.database_url)
        async with database.writing() as connection:
            for statement in _NOTHING:
                await connection.execute(text(statement))
        await database.close()
    else:
        (installation.data(0) / "baobab.db").unlink()
    return installation


async def migrate_to_first(here: Installation) -> None:
    def upgrade(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(migrate.__file__).parents[1] / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, list_revisions()[0])

    database = database_at(here.database_url)
    await database.open()
    async with database.writing() as connection:
        await connection.run_sync(upgrade)
    assert await read_revision(database) == list_revisions()[0]
    await database.close()


@pytest.mark.parametrize("older", [False, True], ids=["nothing", "an older schema"])
async def test_servers_that_start_together_agree_on_the_schema_and_on_one_first_key(
    here: Installation, older: bool
) -> None:
    if older:
        await migrate_to_first(here)
    with contextlib.ExitStack() as running:
        starting = [asyncio.to_thread(running.enter_context, here.start_machine(number)) for number in range(SERVERS)]
        servers = await asyncio.gather(*starting)
        keys = {key for server in servers for key in _KEY.findall(server.log_text)}
        assert len(keys) == 1, "there is one first key"
        assert sum(bool(_KEY.search(server.log_text)) for server in servers) == 1, "and one has told it"
        owner = {"Authorization": f"Bearer {keys.pop()}"}
        async with open_session() as session:
            async with session.post(
                f"{servers[0].address}/init", json={"name": "shared"}, headers=owner
            ) as created_response:
                assert created_response.status == 201
            for server in servers:
                async with session.get(f"{server.address}/apps", headers=owner) as response:
                    assert [app["name"] for app in (await response.json())["apps"]] == ["shared"]
    database = database_at(here.database_url)
    await database.open()
    assert await read_revision(database) == list_revisions()[-1]
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM accounts")) == 1
    await database.close()
