"""The stream of a substrate over a WebSocket: who gets in, and what is told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from baobab.http import open_streams
from tests.http.installation import HOST, Headers, Installation
from tests.servers import TIMEOUT_SECONDS

BASE = "/v1/me/substrate"
REFUSED = 1008

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: Installation) -> Headers:
    headers = await world.create_account("ada@substrate.example")
    assert (await world.ask("POST", f"{BASE}/provision", headers)).status == 200
    return headers


class Socket:
    """The client's end of a WebSocket."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._departure = asyncio.Event()
        self._is_connected = False

    async def receive(self) -> dict[str, Any]:
        if not self._is_connected:
            self._is_connected = True
            return {"type": "websocket.connect"}
        await self._departure.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(self, message: dict[str, Any]) -> None:
        self.messages.put_nowait(message)

    def leave(self) -> None:
        self._departure.set()

    async def read(self) -> Any:
        """The next frame, or the code that the socket was closed with."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            message = await self.messages.get()
        return message["code"] if message["type"] == "websocket.close" else json.loads(message["text"])


@asynccontextmanager
async def open_stream(world: Installation, by: Headers | None = None, **query: str) -> AsyncIterator[Socket]:
    socket = Socket()
    headers = [(name.lower().encode(), value.encode()) for name, value in (by or {}).items()]
    scope = {
        "type": "websocket",
        "path": f"{BASE}/stream",
        "raw_path": f"{BASE}/stream".encode(),
        "query_string": urlencode(query).encode(),
        "headers": [(b"host", HOST.encode()), *headers],
    }
    serving = asyncio.create_task(world.server(scope, socket.receive, socket.send))
    assert (await socket.messages.get())["type"] == "websocket.accept"
    try:
        yield socket
    finally:
        socket.leave()
        await serving


async def get_ticket(world: Installation, by: Headers) -> str:
    answer_json = (await world.ask("POST", f"{BASE}/ws-ticket", by)).json
    assert answer_json["expires_in"] == 60
    ticket: str = answer_json["ticket"]
    return ticket


async def decide(world: Installation, by: Headers) -> Any:
    body = {"capability": "record_decision", "payload": {"title": "Ship", "kind": "vision"}}
    return (await world.ask("POST", f"{BASE}/actions/propose", by, body)).json


async def test_after_hello_each_change_is_told_without_its_contents(world: Installation, ada: Headers) -> None:
    async with open_stream(world, ada) as socket:
        hello = await socket.read()
        assert (hello["type"], isinstance(hello["ts"], int)) == ("hello", True)
        decision = await decide(world, ada)
        frames = [await socket.read(), await socket.read()]
    organisation = (await world.ask("GET", f"{BASE}/settings", ada)).json["organization_id"]
    expected_rows = [("action_ledger", decision["action_id"]), ("decisions", decision["result"]["decision_id"])]
    assert frames == [{"tbl": tbl, "op": "insert", "id": row, "org": organisation} for tbl, row in expected_rows]


async def test_a_ticket_opens_one_stream_and_a_second_try_is_closed_with_1008(
    world: Installation, ada: Headers
) -> None:
    ticket = await get_ticket(world, ada)
    async with open_stream(world, ticket=ticket) as socket:
        assert (await socket.read())["type"] == "hello"
        async with open_stream(world, ticket=ticket) as second:
            assert (await second.read())["error"]["code"] == "AUTH_REQUIRED"
            assert await second.read() == REFUSED
        await decide(world, ada)
        assert (await socket.read())["tbl"] == "action_ledger"


async def test_of_many_who_come_with_one_ticket_at_once_one_gets_in(world: Installation, ada: Headers) -> None:
    ticket = await get_ticket(world, ada)

    async def enter() -> bool:
        async with open_stream(world, ticket=ticket) as socket:
            frame: dict[str, Any] = await socket.read()
            return frame.get("type") == "hello"

    assert sorted(await asyncio.gather(*(enter() for _ in range(6)))) == [False] * 5 + [True]


async def test_a_key_of_the_substrate_opens_the_stream_by_header_and_by_token(
    world: Installation, ada: Headers
) -> None:
    key = await world.create_key(ada, scope="substrate")
    async with open_stream(world, key) as socket:
        assert (await socket.read())["type"] == "hello"
    async with open_stream(world, token=key["authorization"].removeprefix("Bearer ")) as socket:
        assert (await socket.read())["type"] == "hello"


async def test_everybody_else_is_refused(world: Installation, ada: Headers) -> None:
    other = await world.create_key(ada)
    service_key = other["authorization"].removeprefix("Bearer ")
    queries: list[dict[str, str]] = [
        {},
        {"ticket": "wst_x"},
        {"token": "x"},
        {"token": service_key},
        {"ticket": "x" * 101},
    ]
    for query in queries:
        async with open_stream(world, None, **query) as socket:
            assert "error" in await socket.read()
            assert await socket.read() == REFUSED
    async with open_stream(world, other) as socket:
        assert (await socket.read())["error"]["code"] == "AUTH_INSUFFICIENT_PERMISSIONS"
    assert (await world.ask("POST", f"{BASE}/ws-ticket", other)).status == 403
    assert (await world.ask("GET", f"{BASE}/stream", ada)).status == 426


@pytest.mark.parametrize("way", ["header", "token", "ticket"])
async def test_a_stream_ends_with_the_key_that_opened_it_or_got_its_ticket(
    world: Installation, ada: Headers, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr("baobab.tools.substrate.change_feed._BEAT_SECONDS", 0.05)
    created_key = (await world.ask("POST", "/api-keys", ada, {"name": "watcher", "scope": "substrate"})).json
    key: Headers = {"authorization": f"Bearer {created_key['key']}"}
    query = {"header": {}, "token": {"token": created_key["key"]}, "ticket": {"ticket": await get_ticket(world, key)}}[
        way
    ]
    async with open_stream(world, key if way == "header" else None, **query) as socket:
        assert (await socket.read())["type"] == "hello"
        assert (await world.ask("DELETE", f"/api-keys/{created_key['key_id']}", ada)).status == 200
        assert await socket.read() == REFUSED


async def test_a_ticket_of_a_revoked_key_opens_nothing(world: Installation, ada: Headers) -> None:
    created_key = (await world.ask("POST", "/api-keys", ada, {"name": "watcher", "scope": "substrate"})).json
    ticket = await get_ticket(world, {"authorization": f"Bearer {created_key['key']}"})
    await world.ask("DELETE", f"/api-keys/{created_key['key_id']}", ada)
    async with open_stream(world, ticket=ticket) as socket:
        assert (await socket.read())["error"]["code"] == "AUTH_INVALID_API_KEY"
        assert await socket.read() == REFUSED


async def test_the_stream_of_one_organisation_tells_nothing_of_another(world: Installation, ada: Headers) -> None:
    bob = await world.create_account("bob@substrate.example")
    async with open_stream(world, bob) as socket:
        await socket.read()
        await decide(world, ada)
        decision = await decide(world, bob)
        # The first change that is told is the substrate's own beginning.
        ids = [(await socket.read())["id"] for _ in range(3)]
    assert decision["action_id"] in ids


async def test_what_another_process_writes_is_told_as_well(world: Installation, ada: Headers) -> None:
    notices = world.application.services.notices
    async with open_stream(world, ada) as socket:
        await socket.read()
        # As if this process had not written it: only the notice in the database tells.
        before, notices._origin = notices._origin, "another process"
        decision = await decide(world, ada)
        notices._origin = before
        await notices.poll()
        assert (await socket.read())["id"] == decision["action_id"]
