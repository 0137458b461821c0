"""Change notifications: both eras are told of the same changes, for as long as their credential counts."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from baobab.mcp_server.changes import ListChanges, StreamLimits
from baobab.mcp_server.mcp_client import McpClient
from baobab.mcp_server.view import View
from baobab.tools.core.context import RequestContext
from tests.cli.server_process import TIMEOUT_SECONDS as PROCESS_PATIENCE
from tests.cli.server_process import run_server
from tests.clock import FixedClock
from tests.conftest import KEY, Baobab
from tests.installation import open_installation
from tests.mcp_server.mcp_requests import (
    EARLIER,
    ERAS,
    MODERN,
    TIMEOUT_SECONDS,
    Stream,
    build_message,
    build_scope,
    give_tools,
    open_exchange,
    open_stream,
    send_message,
)
from tests.people import create_key, create_person

USER = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
TOOLS = "notifications/tools/list_changed"
RESOURCES = "notifications/resources/list_changed"

each_era = pytest.mark.parametrize("era", ERAS)


async def publish_notice(baobab: Baobab, topic: str, subject: str) -> None:
    services = baobab.application.services
    unit = services.database.build_unit(write=True)
    await services.notices.publish(unit, topic, subject)
    await unit.commit()


async def create_key_with_id(baobab: Baobab, **options: object) -> tuple[str, dict[str, str]]:
    """Id and headers of a new key."""
    body = (await baobab.client.post("/api-keys", json={"name": "test", **options}, headers=baobab.owner)).json()
    return body["key_id"], {"authorization": f"Bearer {body['key']}"}


async def is_over(stream: Stream, era: str) -> bool:
    """Whether a stream ends, and as its protocol says: the later one says so to its client."""
    rest = await stream.read_rest()
    if era == MODERN:
        (last,) = rest
        return last["id"] == 1 and "result" in last
    return rest == []


@contextlib.asynccontextmanager
async def open_limited(
    baobab: Baobab, limits: StreamLimits, by: dict[str, str] | None = None, stream: Stream | None = None
) -> AsyncIterator[Callable[[], contextlib.AbstractAsyncContextManager[Stream]]]:
    """GET streams with bounds of their own: what opens one, entered once for each."""
    changes = ListChanges(baobab.application.registry, limits)
    headers = by or baobab.owner
    caller = await baobab.application.services.credentials.caller(headers["authorization"].encode())
    who = McpClient(caller, View(), RequestContext("mcp", "test"), lambda name: None)

    async def serve(scope: Any, receive: Any, respond: Any) -> None:
        await changes.stream(who, scope, receive, respond)

    def another() -> contextlib.AbstractAsyncContextManager[Stream]:
        return open_exchange(
            serve, build_scope(baobab, "GET", "/mcp", {"accept": "text/event-stream", **headers}), b"", stream
        )

    yield another


@each_era
async def test_a_client_may_know_beforehand_that_lists_change(baobab: Baobab, era: str) -> None:
    hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    method, params = ("initialize", hello) if era == EARLIER else ("server/discover", {})
    capabilities = (await send_message(baobab, method, params, era=era)).result["capabilities"]
    for kind in ("tools", "resources", "prompts"):
        assert capabilities[kind]["listChanged"] is True


@each_era
async def test_a_key_whose_limits_change_is_told_that_its_tools_do(baobab: Baobab, era: str) -> None:
    key_id, by = await create_key_with_id(baobab)
    async with open_stream(baobab, era=era, by=by) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        await baobab.client.patch(f"/api-keys/{key_id}", json={"read_only": True}, headers=baobab.owner)
        assert (await stream.read_message())["method"] == TOOLS
        tools = (await send_message(baobab, "tools/list", by=by, era=era)).result["tools"]
        assert not {"kv_put", "apps_init"} & {tool["name"] for tool in tools}


@each_era
async def test_nobody_else_is_told_of_it(baobab: Baobab, era: str) -> None:
    key_id, _ = await create_key_with_id(baobab)
    async with open_stream(baobab, era=era) as stream:
        await baobab.client.patch(f"/api-keys/{key_id}", json={"read_only": True}, headers=baobab.owner)
        await publish_notice(baobab, "resources", "*")
        assert (await stream.read_message())["method"] == RESOURCES


@each_era
async def test_what_changes_for_everybody_is_told_to_everybody(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    callers = (
        baobab.owner,
        await create_key(baobab, key_scope="app", target_app_id=app_id),
        await baobab.user_headers(app_id, USER),
        (await create_person(baobab, "stranger")).headers,
    )
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(open_stream(baobab, era=era, by=by)) for by in callers]
        await publish_notice(baobab, "tools", "*")
        for stream in streams:
            assert (await stream.read_message())["method"] == TOOLS


@each_era
async def test_an_app_made_or_deleted_changes_the_resources_of_its_organisation(baobab: Baobab, era: str) -> None:
    stranger = await create_person(baobab, "stranger")
    async with (
        open_stream(baobab, era=era) as stream,
        open_stream(baobab, era=era, by=stranger.headers) as strangers,
    ):
        app_id = await baobab.create_app()
        assert (await stream.read_message())["method"] == RESOURCES
        await baobab.client.delete(f"/apps/{app_id}", headers=baobab.owner)
        assert (await stream.read_message())["method"] == RESOURCES
        await publish_notice(baobab, "tools", "*")
        assert (await strangers.read_message())["method"] == TOOLS


async def test_a_subscription_hears_only_what_it_asked_for(baobab: Baobab) -> None:
    async with open_stream(baobab, era=MODERN, toolsListChanged=True) as stream:
        await baobab.create_app()
        await publish_notice(baobab, "tools", "*")
        message = await stream.read_message()
        assert message["method"] == TOOLS
        assert message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1


@each_era
async def test_a_change_that_another_worker_made_is_told_too(tmp_path: Path, era: str) -> None:
    async with (
        open_installation(tmp_path / "data") as here,
        open_installation(tmp_path / "data") as there,
        open_stream(here, era=era) as stream,
    ):
        await there.create_app()
        assert (await stream.read_message())["method"] == RESOURCES


@each_era
async def test_a_stream_ends_when_its_key_is_revoked(baobab: Baobab, era: str) -> None:
    key_id, by = await create_key_with_id(baobab)
    async with open_stream(baobab, era=era, by=by) as stream:
        await baobab.client.delete(f"/api-keys/{key_id}", headers=baobab.owner)
        assert await is_over(stream, era)


@each_era
async def test_a_stream_of_an_app_key_ends_with_its_app(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    by = await create_key(baobab, key_scope="app", target_app_id=app_id)
    async with open_stream(baobab, era=era, by=by) as stream:
        await baobab.client.delete(f"/apps/{app_id}", headers=baobab.owner)
        assert await is_over(stream, era)


@each_era
async def test_a_user_is_told_of_the_tools_that_the_app_gives_until_a_ban(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    resource = f"{baobab.application.services.options.base_url}/mcp?app_id={app_id}"
    by = await baobab.user_headers(app_id, USER, aud=resource)
    await give_tools(baobab, app_id, ["kv_get"])
    async with open_stream(baobab, era=era, by=by, path=f"/mcp?app_id={app_id}") as stream:
        await give_tools(baobab, app_id, ["kv_get", "kv_put"])
        assert (await stream.read_message())["method"] == TOOLS
        user = f"/v1/{app_id}/admin/auth/users/{USER}"
        response = await baobab.client.patch(user, json={"banned": True}, headers=baobab.owner)
        assert response.status_code == 200
        assert await is_over(stream, era)


@each_era
async def test_a_stream_whose_token_has_expired_is_told_nothing_more(tmp_path: Path, era: str) -> None:
    clock = FixedClock()
    async with open_installation(tmp_path / "data", clock=clock) as baobab:
        by = await baobab.user_headers(await baobab.create_app(), USER)
        async with open_stream(baobab, era=era, by=by) as stream:
            clock.advance(3601)
            await publish_notice(baobab, "tools", "*")
            assert await is_over(stream, era)


async def test_an_expired_token_is_noticed_without_any_change(tmp_path: Path) -> None:
    clock = FixedClock()
    async with open_installation(tmp_path / "data", clock=clock) as baobab:
        by = await baobab.user_headers(await baobab.create_app(), USER)
        async with open_limited(baobab, StreamLimits(recheck_seconds=0.01), by) as another, another() as stream:
            clock.advance(3601)
            assert await is_over(stream, EARLIER)


@each_era
async def test_the_ninth_stream_of_a_credential_is_refused_with_a_remedy(baobab: Baobab, era: str) -> None:
    _, by = await create_key_with_id(baobab)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(7):
            await stack.enter_async_context(open_stream(baobab, era=era, by=by))
        async with open_stream(baobab, era=era, by=by):
            async with open_stream(baobab, era=era, by=by) as refusal:
                error = json.loads(await refusal.read_body())["error"]
            assert error["data"]["code"] == "STREAMS_EXHAUSTED"
            assert error["data"]["details"] == {"limit": 8, "of": "credential"}
            assert error["message"] == "No more streams can be opened now."
            assert error["data"]["remediation"].startswith("Close one of details.limit open streams,")
            assert refusal.status == (405 if era == EARLIER else 200)
            async with open_stream(baobab, era=era) as stream:
                assert stream.status == 200
        async with open_stream(baobab, era=era, by=by) as stream:
            await publish_notice(baobab, "tools", "*")
            assert (await stream.read_message())["method"] == TOOLS


async def test_a_worker_holds_so_many_streams_and_no_more(baobab: Baobab) -> None:
    async with open_limited(baobab, StreamLimits(per_worker=1)) as another, another() as first, another() as second:
        assert (first.status, second.status) == (200, 405)


@each_era
async def test_a_client_that_leaves_leaves_nothing_behind(baobab: Baobab, era: str) -> None:
    async with open_stream(baobab, era=era):
        pass
    before = asyncio.all_tasks()
    async with open_stream(baobab, era=era) as stream:
        await publish_notice(baobab, "tools", "*")
        await stream.read_message()
    leftover_tasks = asyncio.all_tasks() - before
    if leftover_tasks:
        await asyncio.wait(leftover_tasks, timeout=TIMEOUT_SECONDS)
    assert all(task.done() for task in leftover_tasks)


class ReluctantStream(Stream):
    """A client that takes so many parts of the answer, and the others once it is willing to."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.willing = asyncio.Event()
        self._parts = parts

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            self._parts -= 1
            if self._parts < 0:
                await self.willing.wait()
        await super().send(message)


async def test_a_client_that_does_not_read_its_stream_is_dropped(baobab: Baobab) -> None:
    bounds = StreamLimits(send_seconds=0.01)
    async with open_limited(baobab, bounds, stream=ReluctantStream(0)) as another, another() as stream:
        await publish_notice(baobab, "tools", "*")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await stream.given_up.wait()


async def test_a_subscription_whose_client_does_not_read_it_ends(baobab: Baobab) -> None:
    slow = ReluctantStream(1)
    async with open_stream(baobab, era=MODERN, stream=slow) as stream:
        for _ in range(40):
            await publish_notice(baobab, "tools", "*")
        slow.willing.set()
        *notifications, last = await stream.read_rest()
        assert "result" in last
        assert len(notifications) < 40


@each_era
async def test_changes_that_come_together_are_told_once(baobab: Baobab, era: str) -> None:
    services = baobab.application.services
    async with open_stream(baobab, era=era) as stream:
        unit = services.database.build_unit(write=True)
        for topic in ("tools", "resources") * 50:
            await services.notices.publish(unit, topic, "*")
        await unit.commit()
        assert [(await stream.read_message())["method"] for _ in range(2)] == [TOOLS, RESOURCES]
        await publish_notice(baobab, "prompts", "*")
        assert (await stream.read_message())["method"] == "notifications/prompts/list_changed"


async def test_a_stream_needs_a_client_that_takes_events(baobab: Baobab) -> None:
    answer = await baobab.client.get("/mcp", headers={**baobab.owner, "accept": "application/json"})
    assert answer.status_code == 406
    assert answer.json()["error"]["data"]["code"] == "NOT_ACCEPTABLE"
    assert answer.json()["error"]["data"]["remediation"]


async def test_the_protocol_of_2026_has_no_get_stream(baobab: Baobab) -> None:
    headers = {**baobab.owner, "accept": "text/event-stream", "mcp-protocol-version": MODERN}
    answer = await baobab.client.get("/mcp", headers=headers)
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]
    assert "subscriptions/listen" in answer.json()["error"]["data"]["remediation"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.on_files
def test_a_server_that_stops_does_not_wait_for_its_streams(tmp_path: Path, workers: int) -> None:
    by = {"authorization": f"Bearer {KEY}"}
    body, headers = build_message("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, era=MODERN)
    options = ("--workers", workers)
    with (
        run_server(tmp_path / "data", *options, settings={"BAOBAB_BOOTSTRAP_KEY": KEY}) as server,
        httpx.Client(timeout=PROCESS_PATIENCE) as client,
        client.stream("GET", f"{server.address}/mcp", headers={**by, "accept": "text/event-stream"}) as earlier,
        client.stream("POST", f"{server.address}/mcp", json=body, headers={**by, **headers}) as modern,
    ):
        assert (earlier.status_code, modern.status_code) == (200, 200)
        stopping = threading.Thread(target=server.terminate)
        stopping.start()
        # Both end as answers end, and are not cut off.
        assert "data:" not in earlier.read().decode()
        assert '"result"' in modern.read().decode()
        stopping.join(PROCESS_PATIENCE)
        # What it says when requests that are under way have used up the time that they are given.
        assert "graceful shutdown exceeded" not in server.log_text
        assert "Traceback" not in server.log_text
