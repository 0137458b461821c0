"""Several cells behind one server: what one that does not answer takes away, and what the others do without it."""

import asyncio
import contextlib
import contextvars
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.sql.database import Database
from tests.cli.server_process import TIMEOUT_SECONDS, run_baobab
from tests.conftest import ADDRESS, KEY
from tests.installation import open_installation
from tests.ports import free_port
from tests.servers import start_postgres
from tests.tools.agents.conftest import build_graph

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


@contextlib.contextmanager
def record_uses(database: Database) -> Iterator[list[str]]:
    """Everything that calls of the test ask a database for; what goes on in the background is not among it."""
    uses: list[str] = []
    of_test = contextvars.ContextVar("of_test", default=False)

    def record(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def use(*arguments: Any, **options: Any) -> Any:
            if of_test.get():
                uses.append(name)
            return original(*arguments, **options)

        return use

    with pytest.MonkeyPatch.context() as patch:
        for name in ("reading", "writing", "execute", "write", "transact", "transact_now"):
            patch.setattr(database, name, record(name, getattr(database, name)))
        of_test.set(True)
        yield uses
        of_test.set(False)


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


async def run_agent(client: httpx.AsyncClient, app: str) -> None:
    """Runs an agent of an app to its end."""
    node = {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_get"}, "args_template": {"key": "a"}}
    spec = build_graph({"read": node, "done": {"type": "end"}}, ("read", "done"), tools={"builtin": ["kv_get"]})
    response = await client.post(f"/v1/{app}/agents", json={"name": "reader", "graph_spec": spec})
    assert response.status_code == 201, response.text
    body = (await client.post(f"/v1/{app}/agents/reader/runs", json={"input": {}})).json()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            run = (await client.get(f"/v1/{app}/agents/reader/runs/{body['run_id']}")).json()["run"]
            if run["finished_at"] is not None:
                assert run["status"] == "completed", run
                return
            await asyncio.sleep(0.05)


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
            for response in (
                await client.get(f"/v1/{far}/kv/a"),
                await client.put(f"/v1/{far}/kv/a", json={"value": 1}),
            ):
                assert (response.status_code, response.json()["error"]) == (503, "store_error")
                assert response.headers["retry-after"]
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
            # Jobs of that region are run from now on, too.
            await run_agent(client, far)


@pytest.mark.parametrize("scope", ["account", "app"])
async def test_keys_of_an_app_in_another_cell_are_read_and_written_without_a_look_into_the_home_database(
    tmp_path: Path, scope: str
) -> None:
    regions = tmp_path / "regions.toml"
    regions.write_text(f"[{FAR}]\n")
    async with open_installation(tmp_path / "data", {"BAOBAB_REGIONS": str(regions)}) as baobab:
        home, client = baobab.application.services.database, baobab.client
        app = await baobab.create_app(region=FAR)
        key = baobab.key
        if scope == "app":
            body = {"name": "far", "key_scope": "app", "target_app_id": app}
            key = (await client.post("/api-keys", json=body, headers=baobab.owner)).json()["key"]
        headers, path = {"authorization": f"Bearer {key}"}, f"/v1/{app}/kv/a"

        async def use_keys(value: int) -> None:
            assert (await client.put(path, json={"value": value}, headers=headers)).status_code == 204
            assert (await client.get(path, headers=headers)).json() == {"value": value}

        with record_uses(home) as uses:
            await use_keys(0)
            assert uses, "the first look goes to the home database"
            uses.clear()
            for value in range(1, 20):
                await use_keys(value)
            assert uses == []


async def test_calls_of_an_app_in_another_cell_do_no_more_in_the_home_database_than_add_to_the_audit_log(
    tmp_path: Path,
) -> None:
    regions = tmp_path / "regions.toml"
    regions.write_text(f"[{FAR}]\n")
    async with open_installation(tmp_path / "data", {"BAOBAB_REGIONS": str(regions)}) as baobab:
        home, client = baobab.application.services.database, baobab.client
        client.headers.update(baobab.owner)
        app = await create_app(client, FAR)
        await run_agent(client, app)
        tool = {"name": "kv_get", "arguments": {"app_id": app, "key": "a"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}
        headers = {"accept": "application/json, text/event-stream"}
        runs = f"/v1/{app}/agents/reader/runs"
        run = (await client.get(runs)).json()["runs"][0]["id"]
        calls: list[tuple[Callable[[int], Awaitable[httpx.Response]], list[str]]] = [
            (lambda _: client.post("/mcp", json=message, headers=headers), []),
            (lambda _: client.get(f"{runs}/{run}"), []),
            # A run that starts is a row of the audit log, which is written and not read.
            (lambda turn: client.post(runs, json={"input": {"turn": turn}, "idempotency_key": str(turn)}), ["writing"]),
        ]
        for call, expected_uses in calls:
            assert (await call(0)).status_code < 300
            with record_uses(home) as uses:
                answer = await call(1)
            assert answer.status_code < 300, answer.text
            assert uses == expected_uses


def test_the_operator_is_told_of_cells_and_why_one_cannot_be_drained(tmp_path: Path) -> None:
    regions = tmp_path / "regions.toml"
    # Nobody listens there.
    nowhere = f"postgresql://u@127.0.0.1:{free_port()}/x"
    regions.write_text(
        f'[eu-1]\ngeography = "eu"\nmax_apps = 9\n[eu-2]\ngeography = "eu"\ndatabase_url = "{nowhere}"\n'
    )
    settings = {"BAOBAB_REGIONS": str(regions)}

    def run_cells(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_baobab("cells", *arguments, "--data", tmp_path / "data", settings=settings)

    assert run_baobab("init", "--data", tmp_path / "data", settings=settings).returncode == 0
    assert run_cells("list").stdout.splitlines() == [
        "local: geography local, apps 0",
        "eu-1: geography eu, apps 0 of 9",
        "eu-2: geography eu, apps 0, does not answer",
    ]
    for cell, words in (("local", "the only cell of the geography local"), ("mars", "The cells are local, eu-1, eu-2")):
        refusal = run_cells("drain", cell)
        assert refusal.returncode == 1
        assert words in refusal.stderr.splitlines()[-1]
    # One that does not answer is drained when it does.
    assert "eu-2: geography eu, apps 0, does not answer, drained since" in run_cells("drain", "eu-2").stdout
    assert "Every other cell" in run_cells("drain", "eu-1").stderr
    assert "drained" not in run_cells("admit", "eu-2").stdout
