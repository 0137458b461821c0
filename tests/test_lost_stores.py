"""A start on stores that are not the installation's own says what is wrong and what to restore, and serves nothing."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.identity import Identity, StoreLost, read_mark
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import migrate
from tests.cli.test_transfer import run_command
from tests.conftest import ADDRESS, KEY
from tests.servers import start_postgres
from tests.storage.kv.memory_engine import MemoryEngine

OWNER = {"authorization": f"Bearer {KEY}"}


def build_server(data: Path, **variables: str) -> Server:
    return Server(load_settings({"BAOBAB_BOOTSTRAP_KEY": KEY, **variables}, data=data))


async def store_value(data: Path, **variables: str) -> str:
    """Start, store a value, and stop; the id of its app."""
    running = build_server(data, **variables)
    async with running.open():
        transport = httpx.ASGITransport(app=running)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=OWNER) as client:
            app: str = (await client.post("/init", json={"name": "shop"})).json()["app_id"]
            assert (await client.put(f"/v1/{app}/kv/a", json={"value": 1})).status_code == 204
    return app


async def catch_refusal(data: Path, **variables: str) -> str:
    """The one line that a start is refused with."""
    with pytest.raises(StoreLost) as refusal:
        async with build_server(data, **variables).open():
            pass
    line = str(refusal.value)
    assert "\n" not in line
    return line


def empty_the_database(data: Path) -> None:
    (data / "baobab.db").write_bytes(b"")
    for beside in data.glob("baobab.db-*"):
        beside.unlink()


def lose_the_keys(data: Path) -> None:
    for file in (data / "kv" / "local").glob("kv.db*"):
        file.unlink()


def lose_the_objects(data: Path) -> None:
    shutil.rmtree(data / "objects")


@pytest.mark.parametrize(
    ("lose", "words"),
    [
        (empty_the_database, ("belongs to another installation", "the database was emptied")),
        (lose_the_keys, ("key-value store of the region local is empty, but it held data", "kv/local", "kv:local")),
        (lose_the_objects, ("object store of the region local is empty, but it held data", "objects/local")),
    ],
)
async def test_a_store_that_lost_its_data_is_not_started_on(
    tmp_path: Path, lose: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    data = tmp_path / "data"
    await store_value(data)
    lose(data)
    line = await catch_refusal(data)
    for word in words:
        assert word in line


async def test_servers_that_start_at_once_on_new_stores_do_not_take_them_for_lost(tmp_path: Path) -> None:
    now = datetime(2026, 11, 1, 12, tzinfo=UTC)
    database = database_at(f"sqlite:///{tmp_path / 'rows.db'}")
    await database.open()
    await migrate(database)

    class SharedEngine(MemoryEngine):
        """The other server starts, from its first step to its last, between two steps of this one."""

        async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
            empty = await super().get(space, key, touch)
            other = await Identity.load(database, "local", now)
            await other.require_kv(shared_engine, "local")
            await other.remember()
            return empty

    shared_engine, seen_by_one = MemoryEngine(), SharedEngine()
    seen_by_one._spaces = shared_engine._spaces
    for engine in (shared_engine, seen_by_one):
        await engine.open()
    one = await Identity.load(database, "local", now)
    await one.require_kv(seen_by_one, "local")
    await one.remember()
    assert await read_mark(shared_engine) == one.id
    await database.close()


async def test_an_emptied_postgres_beside_the_files_of_an_installation_is_not_started_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start_postgres() as servers:
        await store_value(data, BAOBAB_DATABASE_URL=servers.create_database("before"))
        line = await catch_refusal(data, BAOBAB_DATABASE_URL=servers.create_database("emptied"))
    assert "object store of the region local belongs to another installation" in line


async def test_a_changed_region_is_refused_and_the_right_one_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await store_value(data)
    line = await catch_refusal(data, BAOBAB_REGION="mars")
    assert "BAOBAB_REGION=local" in line


async def test_the_key_value_store_of_another_installation_is_refused(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    await store_value(data)
    await store_value(other)
    lose_the_keys(data)
    for file in (other / "kv" / "local").glob("kv.db*"):
        shutil.copyfile(file, data / "kv" / "local" / file.name)
    assert "belongs to another installation" in await catch_refusal(data)


async def test_an_operator_may_begin_anew_with_an_empty_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await store_value(data)
    lose_the_objects(data)
    assert "forget-store objects:local" in await catch_refusal(data)
    assert run_command("forget-store", "objects:mars", "--data", data).exit_code == 1
    assert run_command("forget-store", "objects:local", "--data", data).exit_code == 0
    await store_value(data)
