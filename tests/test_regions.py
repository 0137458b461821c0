"""Two regions on servers of their own behind one real server: what belongs to an app is only ever in its region."""

import contextlib
import itertools
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from baobab.cli import main
from baobab.composition import open_application
from baobab.settings import load_settings
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_baobab, run_server
from tests.ports import free_port
from tests.servers import PostgresServer, ValkeyServer, start_postgres, start_valkey

HOME, FAR = "local", "eu-west-1"
KEY = "bb_sk_" + "R" * 40
KEYS = {HOME: {"valkey"}, FAR: {"kv.entries", "kv.usage"}}
"""Where each region has its key-value store."""
OF_AN_APP = {"kv.entries", "kv.usage", "public.failures", "valkey", "objects"}
"""Where in a region's stores its apps' own things may be."""
_NAMES = itertools.count(1)
_TABLES = """
    SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
"""


@dataclass
class Place:
    """The servers of one region."""

    rows: PostgresServer
    url: str
    keys: ValkeyServer
    objects: Path

    def find_word(self, word: str) -> set[str]:
        """Where in them a word stands: tables, or the kind of store."""
        places = {"objects"} if any(word in str(path) for path in self.objects.rglob("*")) else set()
        # Whatever was ever written stands in its log.
        if any(word.encode() in log.read_bytes() for log in self.keys.folder.glob("appendonlydir/*")):
            places.add("valkey")
        with psycopg.connect(self.url) as connection:
            for names in connection.execute(_TABLES.encode()).fetchall():
                rows = sql.SQL("SELECT 1 FROM {} AS t WHERE strpos(t::text, %s) > 0 LIMIT 1")
                if connection.execute(rows.format(sql.Identifier(*names)), (word,)).fetchone():
                    places.add(".".join(names))
        return places


@dataclass
class Regions:
    places: dict[str, Place]
    environment: dict[str, str]
    data: Path
    server: ServerProcess
    client: httpx.Client

    def create_app(self, region: str) -> str:
        response = self.client.post("/init", json={"name": f"app-{next(_NAMES)}", "region": region})
        assert response.status_code == 201, response.text
        app_id: str = response.json()["app_id"]
        return app_id

    def put(self, app: str, key: str, **options: Any) -> httpx.Response:
        return self.client.put(f"/v1/{app}/kv/{key}", json={"value": key, **options})

    def wait_for_status(self, status: str) -> dict[str, str]:
        """Wait until the server says so of itself; its checks."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            answer = self.client.get("/health/ready")
            if answer.json()["status"] == status:
                assert answer.status_code == (503 if status == "not_ready" else 200)
                checks: dict[str, str] = answer.json()["checks"]
                return checks
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Regions]:
    folder = tmp_path_factory.mktemp("regions")
    with contextlib.ExitStack() as stack:
        places = {}
        for region in (HOME, FAR):
            rows = stack.enter_context(start_postgres())
            keys = stack.enter_context(start_valkey())
            objects = folder / "files" / region
            places[region] = Place(rows, rows.create_database("baobab"), keys, objects)
        home, far = places[HOME], places[FAR]
        file = folder / "regions.toml"
        file.write_text(
            f'[{FAR}]\ndatabase_url = "{far.url}"\nvalkey_url = "{far.keys.url}"\nobjects_url = "file://{far.objects}"\n'
        )
        environment = {
            "BAOBAB_BOOTSTRAP_KEY": KEY,
            "BAOBAB_PLAN": "enterprise",
            "BAOBAB_DATABASE_URL": home.url,
            "BAOBAB_VALKEY_URL": home.keys.url,
            "BAOBAB_KV": "valkey",
            "BAOBAB_OBJECTS_URL": f"file://{home.objects}",
            "BAOBAB_REGIONS": str(file),
        }
        server = stack.enter_context(run_server(folder / "data", settings=environment))
        headers = {"authorization": f"Bearer {KEY}"}
        client = stack.enter_context(httpx.Client(base_url=server.address, headers=headers, timeout=TIMEOUT_SECONDS))
        # Waits for what is loaded after the start: until then its check is not "ok".
        client.get("/docs").raise_for_status()
        yield Regions(places, environment, folder / "data", server, client)


def test_the_regions_are_listed_with_the_installations_own_first(regions: Regions) -> None:
    assert regions.client.get("/v1/regions").json() == {"regions": [HOME, FAR]}


def test_an_app_cannot_be_made_in_a_region_that_there_is_not(regions: Regions) -> None:
    refusal = regions.client.post("/init", json={"name": "lost", "region": "mars-north-1"})
    assert refusal.status_code == 400
    assert refusal.json()["error"]["details"]["regions"] == [HOME, FAR]


async def test_what_belongs_to_an_app_is_only_ever_in_the_stores_of_its_region(regions: Regions) -> None:
    apps = {region: regions.create_app(region) for region in (HOME, FAR)}
    for region, app in apps.items():
        assert regions.put(app, f"durable-{region}").status_code == 204
        assert regions.put(app, f"light-{region}", ephemeral=True).status_code == 204
        assert regions.client.get(f"/v1/{app}/kv/absent-{region}").status_code == 404
        recent = regions.client.get(f"/v1/{app}/kv/_audit_recent").json()["entries"]
        assert [entry["key"] for entry in recent] == [f"absent-{region}"]
    await put_object(regions, apps)

    for region, other in ((HOME, FAR), (FAR, HOME)):
        here, there = regions.places[region], regions.places[other]
        assert here.find_word(apps[region]) & OF_AN_APP == KEYS[region] | {"public.failures", "objects"}
        keys = KEYS[region] - {"kv.usage"}
        for word, places in (("durable", keys), ("light", keys), ("absent", {"public.failures"})):
            assert here.find_word(f"{word}-{region}") == places
            assert there.find_word(f"{word}-{region}") == set()
    assert regions.places[FAR].find_word(apps[HOME]) == set()
    # At home are the rows that the platform has of every app, and counts of its requests.
    home_places = regions.places[HOME].find_word(apps[FAR])
    assert {"public.apps", "public.audit_logs", "public.events"} <= home_places
    assert home_places & OF_AN_APP <= {"valkey"}

    for region, app in apps.items():
        assert regions.client.delete(f"/apps/{app}").status_code == 200
        assert not regions.places[region].find_word(app) & {"kv.entries", "objects"}


async def put_object(regions: Regions, apps: dict[str, str]) -> None:
    """A file of each app, put as a tool would that keeps files."""

    async def hello() -> AsyncIterator[bytes]:
        yield b"hello"

    settings = load_settings({**regions.environment, "BAOBAB_JOBS": "0"}, data=regions.data)
    async with open_application(settings) as application:
        for region, app in apps.items():
            objects = application.services.regions[region].objects
            await objects.put(f"{app}/hello.txt", hello(), content_type="text/plain", max_bytes=10)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["shutdown", "crash"])
def test_a_region_whose_postgres_is_gone_takes_its_own_apps_away_and_no_others(
    regions: Regions, how: signal.Signals
) -> None:
    home, far = regions.create_app(HOME), regions.create_app(FAR)
    rows = regions.places[FAR].rows
    try:
        for app in (home, far):
            assert regions.put(app, "a").status_code == 204
        rows.stop(how)
        for _ in range(3):
            refusal = regions.put(far, "a")
            assert (refusal.status_code, refusal.json()["error"]) == (503, "store_error")
            assert refusal.headers["retry-after"]
            assert regions.client.get(f"/v1/{far}/kv/a").status_code == 503
            assert regions.put(home, "a").status_code == 204
            assert regions.client.get(f"/v1/{home}/kv/a").json() == {"value": "a"}
        # Its own refusals are still read, whatever cannot be written elsewhere.
        assert regions.client.get(f"/v1/{home}/kv/nothing").status_code == 404
        assert regions.client.get(f"/v1/{home}/kv/_audit_recent").status_code == 200
        for path in ("/apps", f"/apps/{far}/status", f"/v1/{far}/config"):
            assert regions.client.get(path).status_code == 200
        checks = regions.wait_for_status("degraded")
        assert {name for name, state in checks.items() if state != "ok"} == {f"database:{FAR}", f"kv:{FAR}"}
        response = regions.client.patch(f"/apps/{far}", json={"name": "renamed"})
        assert response.status_code == 200
        rows.start()
        assert set(regions.wait_for_status("ready").values()) == {"ok"}
        assert regions.client.get(f"/v1/{far}/kv/a").json() == {"value": "a"}
        assert regions.put(far, "a").status_code == 204
        # What was refused meanwhile is told there, once it answers.
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not {503} & list_refusals(regions, far):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        if rows.process is None:
            rows.start()
        for app in (home, far):
            regions.client.delete(f"/apps/{app}").raise_for_status()


def list_refusals(regions: Regions, app: str) -> set[int]:
    recent = regions.client.get(f"/v1/{app}/kv/_audit_recent")
    return {entry["status_code"] for entry in recent.json()["entries"]} if recent.status_code == 200 else set()


PASSWORD = "open-sesame"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[eu-west-1]\ndatabse_url = "postgresql://u:{password}@db/x"', ("eu-west-1.databse_url",)),
        ('[eu-west-1]\ndatabase_url = "mysql://u:{password}@db/x"', ("eu-west-1.database_url", "postgresql://")),
        ('[eu-west-1]\ndatabase_url = "postgresql://u:{password}@db:port/x"', ("eu-west-1.database_url",)),
        ('[eu-west-1]\nvalkey_url = "http://:{password}@keys"', ("eu-west-1.valkey_url", "redis://")),
        ('[eu-west-1]\nobjects_url = "ftp://u:{password}@files"', ("eu-west-1.objects_url", "s3://")),
        ('[eu-west-1]\nkv = "{password}"', ("eu-west-1.kv", "'database' or 'valkey'")),
        ('[eu-west-1]\nkv = "valkey"', ("eu-west-1.kv", "valkey_url")),
        ('[eu-west-1]\ndatabase_url = "postgresql://u:{password}@db/x', ("regions.toml",)),
        ('eu-west-1 = "{password}"', ("eu-west-1",)),
        ("[Mars]\n", ("Mars",)),
        ("[local]\n", ("own region",)),
    ],
)
def test_a_regions_file_that_is_wrong_is_one_line_that_says_where(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    file = tmp_path / "regions.toml"
    file.write_text(text.format(password=PASSWORD))
    result = CliRunner().invoke(main, ["serve"], env={"BAOBAB_REGIONS": str(file)})
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "BAOBAB_REGIONS" in line
    for word in words:
        assert word in line
    assert PASSWORD not in line


@pytest.mark.parametrize(
    "fields",
    [
        'database_url = "postgresql://u:{password}@127.0.0.1:{port}/x"',
        'database_url = "postgresql://u:{password}@127.0.0.1:{port}/x?nonsense={password}"',
        'valkey_url = "redis://:{password}@127.0.0.1:{port}/0"\nkv = "valkey"',
    ],
    ids=["postgres", "an option that is none", "valkey"],
)
def test_a_command_that_needs_every_region_names_the_one_that_does_not_answer_without_its_password(
    tmp_path: Path, fields: str
) -> None:
    file = tmp_path / "regions.toml"
    file.write_text(f"[{FAR}]\n{fields.format(password=PASSWORD, port=free_port())}\n")
    settings = {"BAOBAB_REGIONS": str(file)}
    process = run_baobab("init", "--data", tmp_path / "data", settings=settings)
    assert process.returncode == 0, process
    assert PASSWORD not in process.stderr
    # With one of them left out, its secrets could not be read when the old key is taken away.
    refusal = run_baobab("keys", "rotate-secret", "--data", tmp_path / "data", settings=settings)
    assert refusal.returncode == 1, refusal
    line = refusal.stderr.splitlines()[-1]
    assert f"the region {FAR} does not open" in line
    assert PASSWORD not in refusal.stderr
