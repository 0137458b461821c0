"""`baobab transfer --kv`: the key-value store goes to Valkey or to the database, also from the layout of earlier
versions: durable entries beside the rows, ephemeral ones in Valkey.
"""

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
from baobab.storage.kv.engine import Entry, Quota, Tier
from baobab.storage.kv.engines import engine_at
from tests.cli.server_process import TIMEOUT_SECONDS
from tests.cli.test_transfer import run_command, stall_command
from tests.conftest import ADDRESS, KEY
from tests.servers import PostgresServer, ValkeyServer, start_postgres, start_valkey

pytestmark = pytest.mark.long_file

OWNER = {"authorization": f"Bearer {KEY}"}
FAR = "eu-west-1"
VALUES = {"lasting": 1, "both": 2, "light": 3, "brief": 4}
"""What the store answers; of `both` there is another value in Valkey, which a crash has left."""


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
        """Stores entries as earlier versions did."""
        async with self.open() as client:
            self.app = (await client.post("/init", json={"name": "todo"})).json()["app_id"]
            for key in ("lasting", "both"):
                body = {"value": VALUES[key], "ttl": None}
                assert (await client.put(f"/v1/{self.app}/kv/{key}", json=body)).status_code == 204
        deadline = int(time.time() * 1000) + 3_600_000
        write_old_tier(
            self.valkey_url, self.app, {"light": (b"3", None), "both": (b"9", None), "brief": (b"4", deadline)}
        )

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


def write_old_tier(valkey_url: str, app: str, entries: dict[str, tuple[bytes, int | None]]) -> None:
    """Writes what the engine on two servers had in Valkey for these ephemeral entries, and its functions.

    Also a lock, a key in doubt, and the result of an increment of `brief` by an attempt that may be repeated.
    """
    space = f"kv:{{{app}}}"
    with redis.Redis.from_url(valkey_url) as client:
        for key, (value, deadline) in entries.items():
            expiry = f"{deadline}:3600" if deadline else ":"
            client.hset(f"{space}:entries", key, f"e:{expiry}:".encode() + value)
            client.zadd(f"{space}:keys", {key: 0})
            if deadline:
                client.zadd(f"{space}:expiries", {key: deadline})
        client.set(f"{space}:bytes", sum(len(key) + len(value) for key, (value, _) in entries.items()))
        client.hset(f"{space}:holders", "worker:1", "1:0:1:7")
        client.sadd(f"{space}:doubt", "both")
        client.set(f"{space}:kept:call:0", b"4", ex=604800)
        code = "redis.register_function('baobab_tiers_0123456789ab_look', function() return 1 end)"
        client.function_load(f"#!lua name=baobab_tiers_0123456789ab\n{code}", replace=True)


@pytest.fixture(params=["files", "postgres"])
async def here(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, valkey_server: ValkeyServer
) -> Installation:
    """In the layout of earlier versions."""
    rows_url = "" if request.param == "files" else postgres.create_database(f"kv_{tmp_path.name}")
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
        client.function_flush()
    installation = Installation(tmp_path / "data", rows_url, valkey_server.url)
    await installation.fill()
    return installation


async def test_a_start_on_the_old_layout_says_what_to_do_and_changes_nothing(here: Installation) -> None:
    before = here.list_names()
    line = await here.catch_refusal()
    assert "baobab transfer --kv database" in line
    assert "BAOBAB_KV=valkey" in line
    assert here.list_names() == before
    assert "baobab transfer --kv" in await here.catch_refusal(BAOBAB_KV="valkey")


async def test_the_ephemeral_tier_comes_into_the_database(here: Installation) -> None:
    output = here.transfer("--kv", "database")
    # With the mark of the installation, and the result of an attempt.
    assert "6 keys" in output
    assert "without BAOBAB_KV" in output
    assert await here.read_values() == VALUES
    tiers = {entry.key: entry.tier for entry in await here.export()}
    assert tiers == {"lasting": Tier.DURABLE, "both": Tier.DURABLE, "light": Tier.EPHEMERAL, "brief": Tier.EPHEMERAL}
    assert here.list_names() == []


async def test_both_tiers_go_into_valkey_and_back(here: Installation) -> None:
    output = here.transfer("--kv", "valkey")
    assert "BAOBAB_KV=valkey" in output
    assert await here.export() == []
    assert "baobab transfer --kv" in await here.catch_refusal()
    assert await here.read_values(BAOBAB_KV="valkey") == VALUES
    tiers = {entry.key: entry.tier for entry in await here.export("valkey")}
    assert tiers == {"lasting": Tier.DURABLE, "both": Tier.DURABLE, "light": Tier.EPHEMERAL, "brief": Tier.EPHEMERAL}
    assert not [name for name in here.list_names() if name.endswith((":holders", ":doubt", ":kept:call:0"))]
    here.transfer("--kv", "database", BAOBAB_KV="valkey")
    assert here.list_names() == []
    assert await here.read_values() == VALUES


async def test_a_write_that_an_attempt_made_to_the_ephemeral_tier_is_not_made_again(here: Installation) -> None:
    here.transfer("--kv", "database")
    engine = engine_at(here.data / "kv/local", here.rows_url, "", time.time)
    await engine.open()
    assert await engine.has_written(here.app, "call")
    assert await engine.for_attempt("call").incr(here.app, "brief", 1, None, Quota()) == 4
    assert await engine.get(here.app, "brief") == b"4"
    await engine.close()


async def test_a_dry_run_counts_and_changes_nothing(here: Installation) -> None:
    before = here.list_names()
    assert "6 keys" in here.transfer("--kv", "database", "--dry-run")
    assert here.list_names() == before
    assert [entry.key for entry in await here.export()] == ["both", "lasting"]


async def test_a_store_that_is_where_it_should_be_stays_there(here: Installation) -> None:
    here.transfer("--kv", "database")
    here.transfer("--kv", "database")
    assert await here.read_values() == VALUES
    here.transfer("--kv", "valkey")
    here.transfer("--kv", "valkey", BAOBAB_KV="valkey")
    assert await here.read_values(BAOBAB_KV="valkey") == VALUES


async def test_a_running_server_is_one_line(here: Installation) -> None:
    here.transfer("--kv", "database")
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
async def test_the_old_layout_moves_back_to_files_in_one_step(here: Installation, tmp_path: Path) -> None:
    assert "without BAOBAB_DATABASE_URL, BAOBAB_VALKEY_URL and BAOBAB_KV" in here.transfer(
        "--to", str(tmp_path / "files")
    )
    installation = Installation(tmp_path / "files", "", "")
    installation.app = here.app
    assert await installation.read_values() == VALUES


@pytest.mark.parametrize("here", ["postgres"], indirect=True)
async def test_every_region_is_moved(
    here: Installation, postgres: PostgresServer, tmp_path: Path, valkey_server: ValkeyServer
) -> None:
    far_url, far_valkey = postgres.create_database("far_region"), valkey_server.url.replace("/0", "/1")
    file = tmp_path / "regions.toml"
    file.write_text(f'[{FAR}]\ndatabase_url = "{far_url}"\nvalkey_url = "{far_valkey}"\n')
    here.transfer("--kv", "database")
    async with here.open(BAOBAB_REGIONS=str(file)) as client:
        far_app = (await client.post("/init", json={"name": "far", "region": FAR})).json()["app_id"]
    write_old_tier(far_valkey, far_app, {"light": (b"5", None)})
    assert f"the region {FAR}" in await here.catch_refusal(BAOBAB_REGIONS=str(file))
    here.transfer("--kv", "database", BAOBAB_REGIONS=str(file))
    async with here.open(BAOBAB_REGIONS=str(file)) as client:
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
    with psycopg.connect(here.rows_url, autocommit=True) as connection:
        connection.execute(_STALL_AT_THE_MARK % (event, row, spaces))
    kill_transfer(here, to, "database", _LOCK)
    assert "baobab transfer --kv" in await here.catch_refusal()
    with psycopg.connect(here.rows_url, autocommit=True) as connection:
        connection.execute(b"DROP TRIGGER stall ON kv.entries")
    here.transfer("--kv", to)
    assert await here.read_values(BAOBAB_KV=to) == VALUES
