"""The official client against real servers: what its users may do over both eras of the protocol."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
import uvicorn
from mcp import Client
from mcp.client import session
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from baobab import tools
from baobab.composition import open_application
from baobab.http.protocol import GuardedProtocol
from baobab.mcp_server.catalogue import PAGE
from baobab.mcp_server.endpoint import McpEndpoint
from baobab.settings import load_settings
from baobab.tools.accounts.first_account import ensure_first_account
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.call import Call
from baobab.tools.core.registry import Registry
from baobab.tools.core.toolset import Mcp, Toolset
from tests.backends import prepare_data
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server
from tests.conftest import KEY
from tests.ports import free_port

ERAS = ("legacy", "auto")
"""The client's names for them: `initialize` before 2026, `server/discover` since."""
# On a busy machine a server may take longer for its first answer than the client waits before it tries the other era.
session.DISCOVER_TIMEOUT_SECONDS = TIMEOUT_SECONDS
SETTINGS = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY}


@dataclass
class User:
    """A client, and what it has sent."""

    client: Client
    methods: list[str] = field(default_factory=list)

    async def call_tool(self, tool: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.structured_content


@contextlib.asynccontextmanager
async def connect_user(
    address: str, era: str, *, view: str = "", keep_alive: bool = True, key: str = KEY, on_elicitation: Any = None
) -> AsyncIterator[User]:
    """keep_alive: whether requests may share a connection, which one worker has accepted.

    on_elicitation: answers what the server asks of the user.
    """
    methods: list[str] = []

    async def note(request: httpx2.Request) -> None:
        methods.append(request.method)

    limits = httpx2.Limits(max_keepalive_connections=None if keep_alive else 0)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(
            headers=headers, limits=limits, timeout=TIMEOUT_SECONDS, event_hooks={"request": [note]}
        ) as http,
        Client(
            streamable_http_client(f"{address}/mcp{view}", http_client=http),
            mode=era,
            elicitation_callback=on_elicitation,
        ) as client,
    ):
        yield User(client, methods)


# -- Workers in processes of their own ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two workers."""
    data = tmp_path_factory.mktemp("pair") / "data"
    with run_server(data, "--workers", 2, settings={**SETTINGS, **prepare_data(data)}) as server:
        yield server


def list_workers(server: ServerProcess) -> list[int]:
    pid = server.process.pid
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_writing(process: int) -> bool:
    """Whether it has a file locked for itself."""
    return any(f" WRITE {process} " in lock for lock in Path("/proc/locks").read_text().splitlines())


@contextlib.contextmanager
def freeze_worker(worker: int) -> Iterator[None]:
    """While one worker sleeps, the other must answer everything. It falls asleep when it writes nothing.

    On files, one that is frozen in the middle of writing holds up the others (docs/operating.md).
    """
    os.kill(worker, signal.SIGSTOP)
    while is_writing(worker):
        os.kill(worker, signal.SIGCONT)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.01)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_and_called(pair: ServerProcess, era: str) -> None:
    async with connect_user(pair.address, era) as agent:
        assert (agent.client.protocol_version >= "2026") is (era == "auto")
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert tools["kv_put"].input_schema["required"] == ["app_id", "key", "value"]
        app_id = (await agent.call_tool("apps_init", name=f"of-{era}"))["app_id"]
        await agent.call_tool("kv_put", app_id=app_id, key="a/b", value={"n": 1})
        assert await agent.call_tool("kv_get", app_id=app_id, key="a/b") == {"value": {"n": 1}}


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_wrong_with_the_address_reaches_the_user(pair: ServerProcess, era: str) -> None:
    with pytest.raises((MCPError, ExceptionGroup)) as refusal:
        async with connect_user(pair.address, era, view="?toolset=kv"):
            pass
    error: BaseException = refusal.value
    while isinstance(error, ExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, MCPError)
    assert error.error.message == "`toolset` is not a parameter of this address."
    assert "toolsets" in error.error.data["remediation"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_reaches_the_user_with_code_and_remedy(pair: ServerProcess, era: str) -> None:
    async with connect_user(pair.address, era) as agent:
        refusal = await agent.client.call_tool("kv_get", {"app_id": "app_000000000000", "key": "a"})
        assert refusal.is_error
        assert refusal.meta is not None
        error = refusal.meta["baobab/error"]
        assert error["code"] == "APP_NOT_FOUND"
        (block,) = refusal.content
        assert isinstance(block, TextContent)
        assert error["remediation"] in block.text
        with pytest.raises(MCPError) as unknown:
            await agent.client.call_tool("no_such_tool", {})
        assert unknown.value.error.data["remediation"]


@pytest.mark.parametrize("era", ERAS)
async def test_any_worker_answers_any_request(pair: ServerProcess, era: str) -> None:
    one, other = list_workers(pair)
    async with connect_user(pair.address, era, keep_alive=False) as agent:
        with freeze_worker(one):
            app_id = (await agent.call_tool("apps_init", name=f"shared-{era}"))["app_id"]
            await agent.call_tool("kv_put", app_id=app_id, key="a", value=1)
        with freeze_worker(other):
            assert await agent.call_tool("kv_get", app_id=app_id, key="a") == {"value": 1}
            await agent.call_tool("kv_put", app_id=app_id, key="a", value=2)
        with freeze_worker(one):
            assert await agent.call_tool("kv_get", app_id=app_id, key="a") == {"value": 2}
            assert (await agent.client.list_tools(cache_mode="bypass")).tools


async def create_approval_key(pair: ServerProcess) -> str:
    """A new key whose changes wait for a person."""
    body = {"name": "an agent", "approval": "write"}
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=TIMEOUT_SECONDS) as http:
        response = await http.post(f"{pair.address}/api-keys", json=body)
        key: str = response.json()["key"]
        return key


async def approve(pair: ServerProcess, approval_id: str) -> None:
    """A person's word, on whichever worker takes it."""
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=TIMEOUT_SECONDS) as http:
        response = await http.post(f"{pair.address}/v1/approvals/{approval_id}/approve")
        assert response.status_code == 200, response.text


async def wait_until_executed(pair: ServerProcess, approval_id: str) -> None:
    """Waits for as long as a slow machine takes; a call that goes on waits for twenty seconds (test_approvals.py)."""
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=TIMEOUT_SECONDS) as http,
    ):
        while True:
            answer = await http.get(f"{pair.address}/v1/approvals/{approval_id}")
            assert answer.status_code == 200, answer.text
            if answer.json()["approval"]["status"] == "executed":
                return
            await asyncio.sleep(0.02)


async def test_a_client_shows_its_person_where_to_decide_and_goes_on_by_itself(pair: ServerProcess) -> None:
    urls: list[str] = []

    async def answer_elicitation(_context: Any, params: Any) -> types.ElicitResult:
        urls.append(params.url)
        approval_id = params.url.rsplit("/", 1)[1]
        await approve(pair, approval_id)
        await wait_until_executed(pair, approval_id)
        return types.ElicitResult(action="accept")

    async with connect_user(
        pair.address, "auto", key=await create_approval_key(pair), keep_alive=False, on_elicitation=answer_elicitation
    ) as agent:
        result = await agent.call_tool("apps_init", name="approved-on-the-way")
        assert result["app_id"].startswith("app_")
        assert len(urls) == 1


async def test_an_earlier_client_is_told_in_words_and_calls_again(pair: ServerProcess) -> None:
    async with connect_user(pair.address, "legacy", key=await create_approval_key(pair), keep_alive=False) as agent:
        refusal = await agent.client.call_tool("apps_init", {"name": "approved-by-hand"})
        assert refusal.is_error
        assert refusal.meta is not None
        approval_id = refusal.meta["baobab/error"]["details"]["approval_id"]
        await approve(pair, approval_id)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (await agent.call_tool("approvals_get", approval_id=approval_id))["approval"]["status"] == "approved":
                await asyncio.sleep(0.02)
        result = await agent.call_tool("apps_init", name="approved-by-hand")
        assert result["app_id"].startswith("app_")


async def test_clients_go_on_when_the_server_is_killed_and_started_anew(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    settings = {**SETTINGS, **prepare_data(data)}
    async with contextlib.AsyncExitStack() as stack:
        with run_server(data, settings=settings, port=port) as server:
            agents = [await stack.enter_async_context(connect_user(server.address, era)) for era in ERAS]
            app_id = (await agents[0].call_tool("apps_init", name="survivor"))["app_id"]
            for agent in agents:
                await agent.call_tool("kv_put", app_id=app_id, key=agent.client.protocol_version, value="kept")
            server.kill()
        with run_server(data, settings=settings, port=port):
            for agent in agents:
                key = agent.client.protocol_version
                assert await agent.call_tool("kv_get", app_id=app_id, key=key) == {"value": "kept"}
                assert (await agent.client.list_tools(cache_mode="bypass")).tools


# -- An endpoint in this process, with tools made for the test -----------------------------------------------------


class Blocker:
    """The events that a waiting tool and its test share."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancellation = asyncio.Event()

    async def block(self) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancellation.set()
            raise


def build_probes(blocker: Blocker) -> Toolset:
    probe = Toolset("probe", "Tools for this test.")

    @probe.tool(access=EVERYBODY, effect="read", mcp=Mcp(long_running=True))
    async def probe_steps(call: Call) -> dict[str, bool]:
        """Do something in three steps."""
        for step in (1, 2, 3):
            await call.progress(step, 3, f"step {step}")
        return {"done": True}

    @probe.tool(access=EVERYBODY, effect="write", mcp=Mcp(long_running=True))
    async def probe_wait(call: Call) -> None:
        """Begin something that takes for ever."""
        await call.progress(1, 2, "begun")
        await blocker.block()

    for number in range(PAGE):

        async def probe_one(call: Call) -> None:
            """Be one of many."""

        probe_one.__name__ = f"probe_one_{number}"
        probe.tool(access=EVERYBODY, effect="read")(probe_one)
    return probe


@dataclass
class RunningEndpoint:
    address: str
    blocker: Blocker


@contextlib.asynccontextmanager
async def start_endpoint(data: Path) -> AsyncIterator[RunningEndpoint]:
    """The endpoint itself on a socket: nothing but uvicorn stands before it."""
    blocker = Blocker()
    settings = load_settings({**SETTINGS, **prepare_data(data)}, data=data)
    async with open_application(settings) as application:
        await ensure_first_account(application.services, KEY)
        endpoint = McpEndpoint(Registry([*tools.toolsets(), build_probes(blocker)]).bind(application.services), "1")
        config = uvicorn.Config(
            endpoint, port=0, http=GuardedProtocol, lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        async with endpoint.manager.run():
            serve = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            yield RunningEndpoint(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", blocker)
            server.should_exit = True
            await serve


@pytest.mark.parametrize("era", ERAS)
async def test_a_long_list_comes_in_pages(tmp_path: Path, era: str) -> None:
    async with (
        start_endpoint(tmp_path) as endpoint,
        connect_user(endpoint.address, era, view="?toolsets=probe") as agent,
    ):
        first = await agent.client.list_tools()
        assert first.next_cursor is not None
        second = await agent.client.list_tools(cursor=first.next_cursor)
        assert second.next_cursor is None
        names = [tool.name for tool in (*first.tools, *second.tools)]
        assert names == sorted({"probe_steps", "probe_wait", *(f"probe_one_{number}" for number in range(PAGE))})


@pytest.mark.parametrize(("era", "requests"), [("legacy", 1), ("auto", 0)])
async def test_a_list_that_is_fresh_is_not_asked_for_again(tmp_path: Path, era: str, requests: int) -> None:
    """The protocols before 2026 do not say for how long a list may be kept."""
    async with start_endpoint(tmp_path) as endpoint, connect_user(endpoint.address, era) as agent:
        listed_tools = await agent.client.list_tools()
        before = len(agent.methods)
        assert (await agent.client.list_tools()).tools == listed_tools.tools
        assert len(agent.methods) - before == requests


@pytest.mark.parametrize("era", ERAS)
async def test_progress_reaches_the_user_step_by_step(tmp_path: Path, era: str) -> None:
    progress_queue: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        await progress_queue.put((progress, total, message))

    async with start_endpoint(tmp_path) as endpoint, connect_user(endpoint.address, era) as agent:
        result = await agent.client.call_tool("probe_steps", {}, progress_callback=hear)
        assert result.structured_content == {"done": True}
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert [await progress_queue.get() for _ in range(3)] == [(step, 3, f"step {step}") for step in (1, 2, 3)]


async def test_a_cancelled_call_is_cancelled_on_the_server(tmp_path: Path) -> None:
    """Of the 2026 protocol: the client closes the stream of the answer, and goes on."""
    async with start_endpoint(tmp_path) as endpoint, connect_user(endpoint.address, "auto") as agent:
        call = asyncio.create_task(agent.client.call_tool("probe_wait", {}))
        await wait_for_event(endpoint.blocker.waiting)
        call.cancel()
        await wait_for_event(endpoint.blocker.cancellation)
        assert (await agent.call_tool("probe_steps")) == {"done": True}


async def test_an_earlier_client_cancels_a_call_and_goes_on(tmp_path: Path) -> None:
    """By a notification that names the session and the request; other sessions count their requests alike."""
    async with start_endpoint(tmp_path) as endpoint, httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        headers = {
            "authorization": f"Bearer {KEY}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        }
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

        async def send(session: str, **message: Any) -> httpx2.Response:
            session_headers = {"mcp-session-id": session} if session else {}
            return await http.post(
                f"{endpoint.address}/mcp", json={"jsonrpc": "2.0", **message}, headers=headers | session_headers
            )

        mine, other = [
            (await send("", id=1, method="initialize", params=hello)).headers["mcp-session-id"] for _ in range(2)
        ]
        call = asyncio.create_task(send(mine, id=7, method="tools/call", params={"name": "probe_wait"}))
        await wait_for_event(endpoint.blocker.waiting)
        for session, number in ((other, 7), (mine, 8), (mine, "7")):
            await send(session, method="notifications/cancelled", params={"requestId": number})
        assert not endpoint.blocker.cancellation.is_set()
        assert (await send(mine, method="notifications/cancelled", params={"requestId": 7})).status_code == 202
        await wait_for_event(endpoint.blocker.cancellation)
        assert "CALL_CANCELLED" in (await call).text
        again = await send(mine, id=8, method="tools/call", params={"name": "probe_steps"})
        assert '"done":true' in again.text


async def test_a_cancellation_reaches_the_worker_that_makes_the_call(tmp_path: Path) -> None:
    async with (
        start_endpoint(tmp_path) as here,
        start_endpoint(tmp_path) as there,
        httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as http,
    ):
        headers = {
            "authorization": f"Bearer {KEY}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        }
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

        async def send(to: RunningEndpoint, **message: Any) -> httpx2.Response:
            return await http.post(f"{to.address}/mcp", json={"jsonrpc": "2.0", **message}, headers=headers)

        initialize_response = await send(there, id=1, method="initialize", params=hello)
        headers["mcp-session-id"] = initialize_response.headers["mcp-session-id"]
        call = asyncio.create_task(send(here, id=7, method="tools/call", params={"name": "probe_wait"}))
        await wait_for_event(here.blocker.waiting)
        # Of a call that nobody makes, and then of this one.
        for number in (8, 7):
            response = await send(there, method="notifications/cancelled", params={"requestId": number})
            assert response.status_code == 202
        await wait_for_event(here.blocker.cancellation)
        assert "CALL_CANCELLED" in (await call).text


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_waits_hears_that_the_call_goes_on(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baobab.mcp_server.calls._STEP_SECONDS", 0.05)
    progress_queue: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        await progress_queue.put((progress, total, message))

    async with start_endpoint(tmp_path) as endpoint, connect_user(endpoint.address, era) as agent:
        call = asyncio.create_task(agent.client.call_tool("probe_wait", {}, progress_callback=hear))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            progress_reports = [await progress_queue.get() for _ in range(4)]
        assert progress_reports[0] == (1, 2, "begun")
        steps = [progress for progress, _, _ in progress_reports]
        assert steps == sorted(set(steps))
        call.cancel()


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_client_leaves_is_cancelled(tmp_path: Path, era: str) -> None:
    async with start_endpoint(tmp_path) as endpoint:
        async with connect_user(endpoint.address, era) as agent:
            call = asyncio.create_task(agent.client.call_tool("probe_wait", {}))
            await wait_for_event(endpoint.blocker.waiting)
        await wait_for_event(endpoint.blocker.cancellation)
        with pytest.raises(MCPError):
            await call


async def wait_for_event(event: asyncio.Event) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await event.wait()
