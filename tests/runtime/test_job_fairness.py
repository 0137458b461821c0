"""Jobs of several tenants: whoever waits for the network holds nobody up, and tenants take turns."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.core.job import Job
from baobab.tools.core.toolset import Toolset
from tests import jobs
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import Person, create_key, create_person
from tests.tools.agents.conftest import build_graph
from tests.tools.agents.tool_server import start_tool_server

Headers = dict[str, str]
_NAMES = itertools.count()
VARIABLES = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
EMPTY = build_graph({"done": {"type": "end", "output_template": "done"}})
SLOW = build_graph(
    {"think": {"type": "llm", "input_template": "Think.", "output_key": "said", "model": "slow/thinker"}}
    | {"done": {"type": "end", "output_template": "done"}},
    ("think", "done"),
)
SEARCHING = build_graph(
    {
        "search": {
            "type": "tool",
            "tool_ref": {"source": "mcp", "server_id": "slow", "name": "search"},
            "args_template": {"query": "{{ input.n }}"},
            "output_key": "found",
        },
        "done": {"type": "end", "output_template": "done"},
    },
    ("search", "done"),
    tools={"mcp_servers": [{"server_id": "slow", "tools": ["search"]}]},
)
_LISTED = b'{"object": "list", "data": [{"id": "thinker", "object": "model"}]}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"


@dataclass
class SilentServer:
    """A model server that names its models and answers nothing else."""

    url: str = ""
    waiting: int = 0
    _tasks: set[Any] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET "):
                writer.write(_HEAD % len(_LISTED) + _LISTED)
                await writer.drain()
                return
            self.waiting += 1
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def wait_for_requests(self, count: int) -> None:
        """Return when so many requests wait here."""
        async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
            while self.waiting < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def start_silent_server() -> AsyncIterator[SilentServer]:
    silent = SilentServer()
    server = await asyncio.start_server(silent.serve, "127.0.0.1", 0)
    silent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield silent
    finally:
        server.close()


@dataclass
class Tenant:
    """An organisation with an app."""

    baobab: Baobab
    who: Person
    app: str

    async def ask(self, method: str, path: str, body: Any = None, by: Headers | None = None) -> Any:
        headers = self.who.headers if by is None else by
        answer = await self.baobab.client.request(method, path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    async def create_agent(self, name: str, spec: Any, **settings: Any) -> None:
        body = {"name": name, "graph_spec": spec, "dedupe_window_seconds": 0, **settings}
        await self.ask("POST", f"/v1/{self.app}/agents", body)

    async def start_runs(self, name: str, count: int = 1, **body: Any) -> list[str]:
        bodies = [{"input": {"n": next(_NAMES)}, **body} for _ in range(count)]
        runs = [await self.ask("POST", f"/v1/{self.app}/agents/{name}/runs", each) for each in bodies]
        return [run["run_id"] for run in runs]

    async def wait_for_end(self, name: str, run_id: str) -> str:
        """The status of a run when it has ended."""
        async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
            while True:
                run = (await self.ask("GET", f"/v1/{self.app}/agents/{name}/runs/{run_id}"))["run"]
                if run["status"] not in ("queued", "running"):
                    return str(run["status"])
                await asyncio.sleep(0.01)

    async def make_approved_call(self) -> None:
        agent = await create_key(self.baobab, self.who.headers, approval="write")
        path = f"/v1/{self.app}/kv/approved"
        response = await self.baobab.client.put(path, json={"value": 1}, headers=agent)
        assert response.status_code == 428, response.text
        approval_id = response.json()["approval_id"]
        await self.ask("POST", f"/v1/approvals/{approval_id}/approve", {})
        async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
            while (await self.ask("GET", f"/v1/approvals/{approval_id}"))["approval"]["status"] != "executed":
                await asyncio.sleep(0.01)


async def create_tenant(baobab: Baobab, name: str) -> Tenant:
    who = await create_person(baobab, name)
    response = await baobab.client.post("/init", json={"name": name}, headers=who.headers)
    assert response.is_success, response.text
    return Tenant(baobab, who, response.json()["app_id"])


@pytest.mark.parametrize("count", [8, 50])
async def test_runs_whose_model_never_answers_hold_up_nobody(tmp_path: Path, count: int) -> None:
    async with start_silent_server() as silent, open_installation(tmp_path / "data", VARIABLES) as baobab:
        greedy, other = await create_tenant(baobab, "greedy"), await create_tenant(baobab, "other")
        await greedy.ask("POST", "/v1/ai/servers", {"name": "slow", "url": f"{silent.url}/v1"})
        await greedy.create_agent("thinker", SLOW)
        await other.create_agent("quick", EMPTY)
        await greedy.start_runs("thinker", count)
        await silent.wait_for_requests(count)
        (run_id,) = await other.start_runs("quick")
        assert await other.wait_for_end("quick", run_id) == "completed"
        await other.make_approved_call()
        await greedy.make_approved_call()
        await jobs.run_job(baobab.application, "approvals_tend")


async def test_visitors_of_a_public_agent_hold_up_nobody(tmp_path: Path) -> None:
    async with start_silent_server() as silent, open_installation(tmp_path / "data", VARIABLES) as baobab:
        host, other = await create_tenant(baobab, "host"), await create_tenant(baobab, "other")
        await host.ask("POST", "/v1/ai/servers", {"name": "slow", "url": f"{silent.url}/v1"})
        await host.create_agent("thinker", SLOW, visibility="public", safety_acknowledged=True)
        await other.create_agent("quick", EMPTY)
        app = await baobab.application.services.directory.app(host.app)
        for number in range(8):
            body = {"input": {"n": number}}
            await host.ask("POST", f"/v1/{host.app}/public/agents/thinker/runs", body, by={"apikey": app.anon_key})
        await silent.wait_for_requests(8)
        (run_id,) = await other.start_runs("quick")
        assert await other.wait_for_end("quick", run_id) == "completed"


async def test_webhooks_that_are_not_answered_hold_up_nobody(tmp_path: Path) -> None:
    async with start_silent_server() as silent, open_installation(tmp_path / "data", VARIABLES) as baobab:
        greedy, other = await create_tenant(baobab, "greedy"), await create_tenant(baobab, "other")
        await greedy.create_agent("teller", EMPTY)
        await other.create_agent("quick", EMPTY)
        await greedy.start_runs("teller", 8, webhook_url=f"{silent.url}/told")
        await silent.wait_for_requests(8)
        (run_id,) = await other.start_runs("quick")
        assert await other.wait_for_end("quick", run_id) == "completed"


async def test_tool_servers_that_do_not_answer_hold_up_nobody(tmp_path: Path) -> None:
    async with start_tool_server() as slow, open_installation(tmp_path / "data", VARIABLES) as baobab:
        greedy, other = await create_tenant(baobab, "greedy"), await create_tenant(baobab, "other")
        answer = await greedy.ask("POST", f"/v1/{greedy.app}/mcp-servers", {"name": "slow", "url": slow.mcp})
        assert answer["mcp_server"]["status"] == "healthy", answer
        await greedy.create_agent("searcher", SEARCHING)
        await other.create_agent("quick", EMPTY)
        slow.behaviour = "silent"
        before = len(slow.headers)
        await greedy.start_runs("searcher", 20)
        async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
            while len(slow.headers) < before + 20:
                await asyncio.sleep(0.01)
        (run_id,) = await other.start_runs("quick")
        assert await other.wait_for_end("quick", run_id) == "completed"
        await other.make_approved_call()
        await jobs.run_job(baobab.application, "approvals_tend")


@pytest.fixture
async def full_slots(tmp_path: Path) -> AsyncIterator[tuple[Baobab, list[str], asyncio.Event]]:
    """A process with two slots, jobs that hold theirs until they may go on, and who they were for."""
    toil, tenants, go = Toolset("toil", "Work."), list[str](), asyncio.Event()

    @toil.job(at_once=2)
    async def toil_long(job: Job, whose: str) -> None:
        tenants.append(whose)
        await go.wait()

    @toil.job()
    async def toil_on(job: Job, whose: str) -> None:
        tenants.append(whose)
        await go.wait()

    async with open_installation(tmp_path / "data", {"BAOBAB_JOBS": "2"}, further=[toil]) as baobab:
        yield baobab, tenants, go


async def test_tenants_take_turns_however_much_one_has_asked_for(
    full_slots: tuple[Baobab, list[str], asyncio.Event],
) -> None:
    baobab, tenants, go = full_slots
    services = baobab.application.services
    for whose, count in (("greedy", 20), ("other", 1)):
        unit = services.database.build_unit(write=True)
        for _ in range(count):
            await services.jobs.enqueue(unit, "toil_on", {"whose": whose}, tenant=whose)
        await unit.commit()
    go.set()
    await jobs.run_due_jobs(baobab.application)
    assert len(tenants) == 21
    assert tenants.index("other") <= 4


async def test_an_approved_call_and_upkeep_have_slots_of_their_own(
    full_slots: tuple[Baobab, list[str], asyncio.Event],
) -> None:
    baobab, tenants, go = full_slots
    services = baobab.application.services
    one = await create_tenant(baobab, "one")
    unit = services.database.build_unit(write=True)
    for _ in range(5):
        await services.jobs.enqueue(unit, "toil_on", {"whose": "greedy"}, tenant="greedy")
    await unit.commit()
    async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
        while len(tenants) < 2:
            await asyncio.sleep(0.01)
    await one.make_approved_call()
    await jobs.run_job(baobab.application, "approvals_tend")
    assert len(tenants) == 2
    go.set()
    await jobs.run_due_jobs(baobab.application)


async def test_long_jobs_of_one_tenant_leave_a_slot_to_another(
    full_slots: tuple[Baobab, list[str], asyncio.Event],
) -> None:
    baobab, tenants, go = full_slots
    services = baobab.application.services
    for whose, count in (("greedy", 5), ("other", 1)):
        unit = services.database.build_unit(write=True)
        for _ in range(count):
            await services.jobs.enqueue(unit, "toil_long", {"whose": whose}, tenant=whose)
        await unit.commit()
        async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
            while whose not in tenants:
                await asyncio.sleep(0.01)
    assert tenants == ["greedy", "other"]
    go.set()
    await jobs.run_due_jobs(baobab.application)
    assert len(tenants) == 6
