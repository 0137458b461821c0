"""`baobab transfer --kv`: the key-value store goes to Valkey, and back to the database."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.identity import StoreLost
from baobab.storage.kv.engine import Entry, Tier
from baobab.storage.kv.engines import engine_at
from tests.cli.server_process import TIMEOUT_SECONDS
from tests.cli.test_transfer import run_command, stall_command
from tests.conftest import ADDRESS, KEY
from tests.servers import PostgresServer, ValkeyServer, start_postgres, start_valkey

pytestmark = pytest.mark.long_file

OWNER = {"authorization": f"Bearer {KEY}"}
FAR = "eu-west-1"
VALUES = {"lasting": 1, "light": 3, "brief": 4}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with start_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def valkey_server() -> Iterator[ValkeyServer]:
    with start_valkey() as running:
        yield running


class Installation:
    """An installation that nobody runs, and that has one app."""

    def __init__(self, data: Path, rows_url: str, valkey_url: str) -> None:
        self.data = data
        self.variables = {"BAOBAB_VALKEY_URL": valkey_url, "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_DATABASE_URL": rows_url}
        self.rows_url = rows_url
        self.valkey_url = valkey_url
        self.app = ""

    @contextlib.asynccontextmanager
    async def open(self, **variables: str) -> Any:
        server = Server(load_settings({**self.variables, **variables}, data=self.data))
        async with server.open():
            transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=OWNER) as client:
                yield client

    async def fill(self) -> None:
        async with self.open() as client:
            self.app = (await client.post("/init", json={"name": "todo"})).json()["app_id"]
            for key, tier in (("lasting", {}), ("light", {"ephemeral": True}), ("brief", {"ephemeral": True})):
                body = {"value": VALUES[key], "ttl": 3600 if key == "brief" else None, **tier}
                assert (await client.put(f"/v1/{self.app}/kv/{key}", json=body)).status_code == 204

    async def read_values(self, **variables: str) -> dict[str, Any]:
        async with self.open(**variables) as client:
            ttl = (await client.get(f"/v1/{self.app}/kv/brief/ttl")).json()["ttl"]
            assert 3600 - 10 * TIMEOUT_SECONDS < ttl <= 3600
            return {key: (await client.get(f"/v1/{self.app}/kv/{key}")).json()["value"] for key in VALUES}

    async def catch_refusal(self, **variables: str) -> str:
        """The one line that a start is refused with."""
        with pytest.raises(StoreLost) as refusal:
            async with self.open(**variables):
                pass
        line = str(refusal.value)
        assert "\n" not in line
        return line

    async def export(self, kv: Any = "database") -> list[Entry]:
        engine = engine_at(self.data / "kv/local", self.rows_url or "sqlite:///", self.valkey_url, time.time, kv)
        await engine.open()
        try:
            return await engine.export(self.app, None, 100)
        finally:
            await engine.close()

    def transfer(self, *options: str, **variables: str) -> str:
        """Moves the store; what the command says."""
        process = run_command("transfer", "--data", self.data, *options, **self._lower(variables))
        assert process.exit_code == 0, process.output
        return process.stdout

    def read_refusal(self, *options: str, **variables: str) -> str:
        process = run_command("transfer", "--data", self.data, *options, **self._lower(variables))
        assert process.exit_code != 0, process.output
        return process.stderr.strip()

    def list_names(self) -> list[str]:
        """The names of everything of the store in Valkey."""
        with redis.Redis.from_url(self.valkey_url, decode_responses=True) as client:
            return sorted(client.keys("kv:*"))

    def _lower(self, variables: dict[str, str]) -> dict[str, str]:
        return {name.removeprefix("BAOBAB_").lower(): value for name, value in {**self.variables, **variables}.items()}


@pytest.fixture(params=["files", "postgres"])
async def here(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, valkey_server: ValkeyServer
) -> Installation:
    """With its store in the database."""
    rows_url = "" if request.param == "files" else postgres.create_database(f"kv_{tmp_path.name}")
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
        client.function_flush()
    installation = Installation(tmp_path / "data", rows_url, valkey_server.url)
    await installation.fill()
    return installation


async def test_both_tiers_go_into_valkey_and_back(here: Installation) -> None:
    output = here.transfer("--kv", "valkey")
    assert "BAOBAB_KV=valkey" in output
    assert await here.export() == []
    assert "baobab transfer --kv" in await here.catch_refusal()
    assert await here.read_values(BAOBAB_KV="valkey") == VALUES
    tiers = {entry.key: entry.tier for entry in await here.export("valkey")}
    assert tiers == {"lasting": Tier.DURABLE, "light": Tier.EPHEMERAL, "brief": Tier.EPHEMERAL}
    here.transfer("--kv", "database", BAOBAB_KV="valkey")
    assert here.list_names() == []
    assert await here.read_values() == VALUES


async def test_a_dry_run_counts_and_changes_nothing(here: Installation) -> None:
    # With the mark of the installation.
    assert "4 keys" in here.transfer("--kv", "valkey", "--dry-run")
    assert here.list_names() == []
    assert [entry.key for entry in await here.export()] == sorted(VALUES)


async def test_a_store_that_is_where_it_should_be_stays_there(here: Installation) -> None:
    here.transfer("--kv", "database")
    here.transfer("--kv", "database")
    assert await here.read_values() == VALUES
    here.transfer("--kv", "valkey")
    here.transfer("--kv", "valkey", BAOBAB_KV="valkey")
    assert await here.read_values(BAOBAB_KV="valkey") == VALUES


async def test_a_running_server_is_one_line(here: Installation) -> None:
    async with here.open():
        assert "in use" in here.read_refusal("--kv", "valkey")
    assert await here.read_values() == VALUES


async def test_the_valkey_of_another_installation_is_left_as_it_is(here: Installation, tmp_path: Path) -> None:
    here.transfer("--kv", "valkey")
    other = Installation(tmp_path / "other", "", here.valkey_url)
    async with other.open():
        # It only counts there.
        pass
    before = here.list_names()
    for place in ("database", "valkey"):
        assert "belongs to another installation" in other.read_refusal("--kv", place)
    assert here.list_names() == before


async def test_without_a_valkey_or_a_place_to_go_it_is_one_line(tmp_path: Path) -> None:
    alone = Installation(tmp_path / "data", "", "")
    async with alone.open():
        pass
    assert "BAOBAB_VALKEY_URL" in alone.read_refusal("--kv", "database")
    assert "Give --to, or --kv alone." in alone.read_refusal()
    assert "Give --to, or --kv alone." in alone.read_refusal("--kv", "valkey", "--valkey", "redis://127.0.0.1:1")


@pytest.mark.parametrize("here", ["postgres"], indirect=True)
async def test_every_region_is_moved(
    here: Installation, postgres: PostgresServer, tmp_path: Path, valkey_server: ValkeyServer
) -> None:
    far_url, far_valkey = postgres.create_database("far_region"), valkey_server.url.replace("/0", "/1")
    file = tmp_path / "regions.toml"
    file.write_text(f'[{FAR}]\ndatabase_url = "{far_url}"\nvalkey_url = "{far_valkey}"\n')
    async with here.open(BAOBAB_REGIONS=str(file)) as client:
        far_app = (await client.post("/init", json={"name": "far", "region": FAR})).json()["app_id"]
        assert (await client.put(f"/v1/{far_app}/kv/light", json={"value": 5})).status_code == 204
    here.transfer("--kv", "valkey", BAOBAB_REGIONS=str(file))
    assert "the region local" in await here.catch_refusal(BAOBAB_REGIONS=str(file))
    file.write_text(f'{file.read_text()}kv = "valkey"\n')
    async with here.open(BAOBAB_REGIONS=str(file), BAOBAB_KV="valkey") as client:
        assert (await client.get(f"/v1/{far_app}/kv/light")).json() == {"value": 5}


def kill_transfer(here: Installation, to: str, kv: str, lock: bytes) -> None:
    """Begins a transfer, and kills it where it needs what `lock` holds."""
    command = ("transfer", "--data", here.data, "--kv", to)
    settings = {**here.variables, "BAOBAB_KV": kv}
    with (
        psycopg.connect(here.rows_url, autocommit=True) as blocker,
        stall_command(*command, blocker=blocker, lock=lock, settings=settings),
    ):
        pass


_STALL_AT_THE_MARK = b"""
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER stall AFTER %b ON kv.entries FOR EACH ROW WHEN (%b.space %b) EXECUTE FUNCTION stall();
"""
_LOCK = b"SELECT pg_advisory_xact_lock(77)"


@pytest.mark.parametrize("here", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("to", "event", "row", "spaces"),
    [
        ("database", b"INSERT", b"NEW", b"<> '~installation'"),
        ("valkey", b"DELETE", b"OLD", b"= '~installation'"),
        ("valkey", b"DELETE", b"OLD", b"<> '~installation'"),
    ],
    ids=["at the first entry", "before the mark is deleted", "after the mark was deleted"],
)
async def test_killed_anywhere_no_server_starts_and_it_ends_right_the_next_time(
    here: Installation, to: str, event: bytes, row: bytes, spaces: bytes
) -> None:
    kv = "database"
    if to == "database":
        here.transfer("--kv", "valkey")
        kv = "valkey"
    with psycopg.connect(here.rows_url, autocommit=True) as connection:
        connection.execute(_STALL_AT_THE_MARK % (event, row, spaces))
    kill_transfer(here, to, kv, _LOCK)
    assert "baobab transfer --kv" in await here.catch_refusal()
    with psycopg.connect(here.rows_url, autocommit=True) as connection:
        connection.execute(b"DROP TRIGGER stall ON kv.entries")
    here.transfer("--kv", to, BAOBAB_KV=kv)
    assert await here.read_values(BAOBAB_KV=to) == VALUES
