"""Several cells behind one server: what one that does not answer takes away, and what the others do without it."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from baobab.server import Server
from baobab.settings import load_settings
from tests.cli.server_process import TIMEOUT_SECONDS
from tests.conftest import ADDRESS, KEY
from tests.servers import start_postgres

FAR = "eu-west-1"
OWNER = {"authorization": f"Bearer {KEY}"}


@dataclass
class BreakableCell:
    """The rows of a further region, which can be taken away and brought back."""

    database_url: str
    take_away: Callable[[], None]
    bring_back: Callable[[], None]


@contextlib.contextmanager
def prepare_files(folder: Path) -> Iterator[BreakableCell]:
    file, aside = folder / "far.db", folder / "aside.db"

    def take_away() -> None:
        file.rename(aside)
        file.write_bytes(b"this is no database" * 1000)

    def bring_back() -> None:
        aside.replace(file)

    yield BreakableCell(f"sqlite:///{file}", take_away, bring_back)


@contextlib.contextmanager
def prepare_postgres(folder: Path) -> Iterator[BreakableCell]:
    with start_postgres() as server:
        yield BreakableCell(server.create_database("far"), lambda: server.stop(signal.SIGINT), server.start)


@contextlib.asynccontextmanager
async def open_client(folder: Path, cell: BreakableCell) -> AsyncIterator[httpx.AsyncClient]:
    """A server on files, with a further region."""
    regions = folder / "regions.toml"
    regions.write_text(f'[{FAR}]\ndatabase_url = "{cell.database_url}"\n')
    variables = {"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise", "BAOBAB_REGIONS": str(regions)}
    server = Server(load_settings(variables, data=folder / "data"))
    async with server.open():
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=OWNER) as client:
            yield client


async def create_app(client: httpx.AsyncClient, region: str) -> str:
    app: str = (await client.post("/init", json={"name": region, "region": region})).json()["app_id"]
    assert (await client.put(f"/v1/{app}/kv/a", json={"value": region})).status_code == 204
    return app


async def wait_for(client: httpx.AsyncClient, path: str, status: int) -> httpx.Response:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (answer := await client.get(path)).status_code != status:
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.05)
    return answer


@pytest.mark.parametrize("prepare", [prepare_files, prepare_postgres], ids=["a broken file", "a stopped server"])
async def test_a_server_starts_without_a_region_that_does_not_answer_and_serves_it_when_it_does(
    tmp_path: Path,
    prepare: Callable[[Path], contextlib.AbstractContextManager[BreakableCell]],
) -> None:
    with prepare(tmp_path) as cell:
        async with open_client(tmp_path, cell) as client:
            home, far = await create_app(client, "local"), await create_app(client, FAR)
        cell.take_away()
        async with open_client(tmp_path, cell) as client:
            for refused in (
                await client.get(f"/v1/{far}/kv/a"),
                await client.put(f"/v1/{far}/kv/a", json={"value": 1}),
            ):
                assert (refused.status_code, refused.json()["error"]) == (503, "store_error")
                assert refused.headers["retry-after"]
            agents = await client.get(f"/v1/{far}/agents")
            assert (agents.status_code, agents.headers["retry-after"]) == (503, "2")
            # Nothing of an app may be left behind in a region that cannot be seen.
            assert (await client.delete(f"/apps/{far}")).status_code == 503
            assert (await client.get(f"/v1/{home}/kv/a")).json() == {"value": "local"}
            assert (await client.put(f"/v1/{home}/kv/a", json={"value": 2})).status_code == 204
            assert (await client.get("/v1/regions")).json() == {"regions": ["local", FAR]}
            ready = (await client.get("/health/ready")).json()
            assert (ready["status"], ready["checks"][f"database:{FAR}"]) == ("degraded", "failed")
            cell.bring_back()
            assert (await wait_for(client, f"/v1/{far}/kv/a", 200)).json() == {"value": FAR}
            assert (await client.put(f"/v1/{far}/kv/a", json={"value": 3})).status_code == 204
            assert (await client.get("/health/ready")).json()["status"] == "ready"
            # What was refused meanwhile is told there.
            entries = (await client.get(f"/v1/{far}/kv/_audit_recent")).json()["entries"]
            assert 503 in {entry["status_code"] for entry in entries}
