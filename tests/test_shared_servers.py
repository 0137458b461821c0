"""Two installations on one Postgres and one Valkey are one: what workers on several machines rely on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from baobab.server import Server
from baobab.settings import load_settings
from tests.conftest import ADDRESS, KEY
from tests.servers import TIMEOUT_SECONDS, PostgresServer, ValkeyServer, start_postgres, start_valkey

SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlYy0="


@pytest.fixture(scope="module")
def rows() -> Iterator[PostgresServer]:
    with start_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def counts() -> Iterator[ValkeyServer]:
    with start_valkey() as running:
        yield running


@contextlib.asynccontextmanager
async def open_machine(folder: Path, **settings: str) -> AsyncIterator[httpx.AsyncClient]:
    """One of the machines: a data folder of its own, and the secret that all of them share."""
    environment = {f"BAOBAB_{name.upper()}": value for name, value in settings.items()}
    environment |= {"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_SECRET_KEY": SECRET, "BAOBAB_PLAN": "playground"}
    server = Server(load_settings(environment, data=folder))
    async with server.open():
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=headers) as client:
            yield client


@pytest.mark.parametrize("store", ["postgres", "valkey"])
async def test_what_one_machine_stores_the_other_reads(
    rows: PostgresServer, counts: ValkeyServer, tmp_path: Path, store: str
) -> None:
    shared_settings = {"database_url": rows.create_database(f"shared_{store}")}
    if store == "valkey":
        shared_settings |= {"valkey_url": counts.url, "kv": "valkey"}
    async with (
        open_machine(tmp_path / "a", **shared_settings) as one,
        open_machine(tmp_path / "b", **shared_settings) as other,
    ):
        app_id = (await one.post("/init", json={"name": "todo"})).json()["app_id"]
        assert (await one.put(f"/v1/{app_id}/kv/a", json={"value": {"n": 1}})).status_code == 204
        assert (await other.get(f"/v1/{app_id}/kv/a")).json() == {"value": {"n": 1}}
        raises = [machine_.post(f"/v1/{app_id}/kv/visits/incr") for machine_ in (one, other) * 5]
        answers = [answer.json()["value"] for answer in await asyncio.gather(*raises)]
        assert sorted(answers) == list(range(1, 11))
        key = (await one.post("/api-keys", json={"name": "short-lived"})).json()
        headers = {"authorization": f"Bearer {key['key']}"}
        assert (await other.get("/apps", headers=headers)).status_code == 200
        await one.delete(f"/api-keys/{key['key_id']}")
        # It is told: what it remembers of a key lasts for thirty seconds.
        async with asyncio.timeout(20):
            while (await other.get("/apps", headers=headers)).status_code != 401:
                await asyncio.sleep(0.02)


async def test_a_limit_counts_for_all_machines_together(
    rows: PostgresServer, counts: ValkeyServer, tmp_path: Path
) -> None:
    arguments = {"database_url": rows.create_database("limits"), "valkey_url": counts.url}
    async with open_machine(tmp_path / "a", **arguments) as one, open_machine(tmp_path / "b", **arguments) as other:
        body = {"email": "nobody@example.com", "password": "wrong Horse 7!"}
        answers = [(await machine_.post("/platform/login", json=body)).status_code for machine_ in (one, other) * 12]
        alone = [(await one.post("/platform/login", json=body)).status_code]
        refusal = answers.index(429)
        assert set(answers[refusal:]) == {429}
        assert alone == [429]


@pytest.mark.parametrize("kv", ["database", "valkey"])
async def test_without_valkey_what_is_kept_there_answers_503_and_the_rest_goes_on(
    rows: PostgresServer, tmp_path: Path, kv: str
) -> None:
    status_codes = {"database": (200, 204, 200), "valkey": (503, 503, 503)}[kv]
    with start_valkey() as own:
        arguments = {
            "database_url": rows.create_database(f"outage_{kv}"),
            "valkey_url": own.url,
            "kv": kv,
        }
        async with open_machine(tmp_path / "a", **arguments) as client:
            app_id = (await client.post("/init", json={"name": "todo"})).json()["app_id"]
            assert (await client.put(f"/v1/{app_id}/kv/a", json={"value": 1})).status_code == 204
            own.stop()
            read = await client.get(f"/v1/{app_id}/kv/a")
            response = await client.put(f"/v1/{app_id}/kv/b", json={"value": 1, "ephemeral": True})
            ready = await client.get("/health/ready")
            assert (read.status_code, response.status_code, ready.status_code) == status_codes
            assert ready.json()["checks"]["kv:local"] == ("ok" if kv == "database" else "failed")
            assert (await client.get("/apps")).status_code == 200
            own.start()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while (await client.get("/health/ready")).status_code != 200:
                    await asyncio.sleep(0.05)
            assert (await client.get(f"/v1/{app_id}/kv/a")).json() == {"value": 1}
