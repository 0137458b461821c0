"""Callers without a credential are bounded before they are served: their requests, bodies, sockets and streams."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from baobab.http import open_streams
from baobab.http.bodies import BodyBudget
from baobab.http.open_streams import OpenStreams, StreamLimits
from baobab.serving import MOST_MESSAGE_BYTES
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.errors import TooManyStreams
from baobab.tools.core.tenancy import set_tenant
from tests.conftest import Baobab
from tests.http.live_server import serve_installation
from tests.people import create_key, create_person
from tests.servers import TIMEOUT_SECONDS
from tests.tools.agents.conftest import build_graph

WAIT = build_graph(
    {
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "Go on?"},
            "output_key": "answer",
        },
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    ("ask", "done"),
    tools={"builtin": ["interrupt"]},
)


@pytest.fixture
def settings() -> dict[str, str]:
    return {}


@pytest.fixture
async def live_baobab(tmp_path: Path) -> AsyncIterator[Baobab]:
    async with serve_installation(tmp_path / "data", {"BAOBAB_PLAN": "enterprise"}) as served_baobab:
        yield served_baobab


async def create_waiting_run(baobab: Baobab) -> tuple[str, str, dict[str, str]]:
    """An app, a run of its public agent that waits for a person, and an anon key."""
    app = await baobab.create_app()
    agent = {"name": "asker", "graph_spec": WAIT, "visibility": "public", "safety_acknowledged": True}
    response = await baobab.client.post(f"/v1/{app}/agents", json=agent, headers=baobab.owner)
    assert response.status_code == 201, response.text
    anon = await baobab.client.get(f"/v1/{app}/config", headers=baobab.owner)
    anon_key = (
        {"apikey": anon.json()["anon_key"]}
        if "anon_key" in anon.json()
        else {"apikey": await _get_anon_key(baobab, app)}
    )
    run = await baobab.client.post(f"/v1/{app}/public/agents/asker/runs", json={"input": {}}, headers=anon_key)
    assert run.status_code == 202, run.text
    return app, run.json()["run_id"], anon_key


async def _find_key_id(baobab: Baobab, name: str) -> str:
    body = (await baobab.client.get("/api-keys", headers=baobab.owner)).json()
    keys = body.get("keys") or body.get("api_keys") or body["data"]
    [key] = [one for one in keys if one["name"] == name]
    value: str = key["id"] if "id" in key else key["key_id"]
    return value


async def _get_anon_key(baobab: Baobab, app: str) -> str:
    return (await baobab.application.services.directory.app(app)).anon_key


def websocket_url(baobab: Baobab, path: str) -> str:
    return str(baobab.client.base_url).replace("http://", "ws://") + path


async def create_stream_token(baobab: Baobab, app: str, run: str, anon: dict[str, str]) -> str:
    response = await baobab.client.post(f"/v1/{app}/public/runs/{run}/stream-token", headers=anon)
    value: str = response.json()["stream_token"]
    return value


@pytest.mark.parametrize("path", ["/health", "/llms.txt", "/mcp", "/docs", "/metrics", "/approvals", "/nowhere"])
async def test_a_websocket_on_another_path_is_refused_cleanly(
    live_baobab: Baobab, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        async with connect(websocket_url(live_baobab, path)):
            pass
    answer = refusal.value.response
    assert answer.status_code == 400
    assert json.loads(answer.body or b"")["error"]["code"] == "HTTP_NO_WEBSOCKET"
    assert answer.headers["x-request-id"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(("message", "code"), [("x" * (MOST_MESSAGE_BYTES + 1), 1009), (b"\xff\xfe", 1007)])
async def test_what_a_socket_takes_in_is_a_few_bytes_of_text(
    live_baobab: Baobab, message: Any, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    app, run, anon = await create_waiting_run(live_baobab)
    token = await create_stream_token(live_baobab, app, run, anon)
    async with connect(websocket_url(live_baobab, f"/v1/{app}/public/runs/{run}/ws?token={token}")) as connection:
        await connection.recv()
        await connection.send(message, text=True) if isinstance(message, bytes) else await connection.send(message)
        with contextlib.suppress(ConnectionClosed):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                async for _ in connection:
                    pass
    assert connection.close_code == code
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_one_address_may_open_so_many_streams_of_events_and_no_more(live_baobab: Baobab) -> None:
    app, run, anon = await create_waiting_run(live_baobab)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(32):
            token = await create_stream_token(live_baobab, app, run, anon)
            connection = await stack.enter_async_context(
                connect(websocket_url(live_baobab, f"/v1/{app}/public/runs/{run}/ws?token={token}"))
            )
            await connection.recv()
        token = await create_stream_token(live_baobab, app, run, anon)
        refusal = await live_baobab.client.get(f"/v1/{app}/public/runs/{run}/events?token={token}")
        assert refusal.status_code == 429, refusal.text
        # Those who sign in have places of their own.
        async with live_baobab.client.stream(
            "GET", f"/v1/{app}/agents/asker/runs/{run}/events", headers=live_baobab.owner
        ) as answer:
            assert answer.status_code == 200
    token = await create_stream_token(live_baobab, app, run, anon)
    async with live_baobab.client.stream("GET", f"/v1/{app}/public/runs/{run}/events?token={token}") as answer:
        assert answer.status_code == 200


async def test_streams_of_one_organisation_leave_places_for_others(baobab: Baobab) -> None:
    streams = OpenStreams(baobab.application.services.notices, StreamLimits(in_all=8, of_tenant=2, of_caller=100))

    def open_one(stack: contextlib.ExitStack, tenant: str) -> None:
        set_tenant(tenant)
        stack.enter_context(streams.hold_place(ANONYMOUS, "192.0.2.1", f"run-{len(tenants)}"))
        tenants.append(tenant)

    tenants: list[str] = []
    with contextlib.ExitStack() as stack:
        for tenant in ("crowd",) * 4 + ("small",) * 2 + ("other",) * 2:
            open_one(stack, tenant)
            with pytest.raises(TooManyStreams) if len(tenants) >= 4 else contextlib.nullcontext():
                # It has what it may have while half of all are taken.
                with contextlib.ExitStack() as further:
                    open_one(further, "crowd")
                tenants.pop()
    assert tenants == ["crowd"] * 4 + ["small"] * 2 + ["other"] * 2


async def test_a_stream_of_events_ends_when_its_key_is_revoked(
    live_baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, run, _ = await create_waiting_run(live_baobab)
    response = await live_baobab.client.post("/api-keys", json={"name": "reader"}, headers=live_baobab.owner)
    reader = {"authorization": f"Bearer {response.json()['key']}"}
    # The beat and the time between two looks are parts of seconds here.
    monkeypatch.setattr(open_streams, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr("baobab.tools.agents.run_events._BEAT_SECONDS", 0.05)
    async with (
        asyncio.timeout(20),
        live_baobab.client.stream("GET", f"/v1/{app}/agents/asker/runs/{run}/events", headers=reader) as answer,
    ):
        pieces = answer.aiter_text()
        assert "retry" in await anext(pieces)
        await live_baobab.client.delete(
            f"/api-keys/{(await _find_key_id(live_baobab, 'reader'))}", headers=live_baobab.owner
        )
        async for _ in pieces:
            pass


@pytest.mark.parametrize("visibility", ["private", "authenticated"])
async def test_a_stream_of_a_visitor_ends_when_the_agent_is_no_longer_public(
    live_baobab: Baobab, monkeypatch: pytest.MonkeyPatch, visibility: str
) -> None:
    app, run, anon = await create_waiting_run(live_baobab)
    token = await create_stream_token(live_baobab, app, run, anon)
    monkeypatch.setattr("baobab.tools.agents.run_events._BEAT_SECONDS", 0.05)
    async with (
        asyncio.timeout(20),
        live_baobab.client.stream("GET", f"/v1/{app}/public/runs/{run}/events?token={token}") as answer,
    ):
        pieces = answer.aiter_text()
        await anext(pieces)
        response = await live_baobab.client.patch(
            f"/v1/{app}/agents/asker", json={"visibility": visibility}, headers=live_baobab.owner
        )
        assert response.status_code == 200, response.text
        async for _ in pieces:
            pass


async def test_a_stream_of_a_user_ends_when_the_agent_is_made_private(
    live_baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _, _ = await create_waiting_run(live_baobab)
    ada = await live_baobab.user_headers(app, "ada")
    run = (await live_baobab.client.post(f"/v1/{app}/agents/asker/runs", json={"input": {}}, headers=ada)).json()[
        "run_id"
    ]
    monkeypatch.setattr("baobab.tools.agents.run_events._BEAT_SECONDS", 0.05)
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        live_baobab.client.stream("GET", f"/v1/{app}/agents/asker/runs/{run}/events", headers=ada) as answer,
    ):
        pieces = answer.aiter_text()
        await anext(pieces)
        body = {"visibility": "private"}
        change = await live_baobab.client.patch(f"/v1/{app}/agents/asker", json=body, headers=live_baobab.owner)
        assert change.status_code == 200, change.text
        async for _ in pieces:
            pass


@pytest.mark.parametrize("signed_in_elsewhere", [False, True])
async def test_securing_an_app_ends_the_streams_of_visitors_and_voids_their_stream_tokens(
    live_baobab: Baobab, monkeypatch: pytest.MonkeyPatch, signed_in_elsewhere: bool
) -> None:
    app, run, anon = await create_waiting_run(live_baobab)
    token, unused_token = (
        await create_stream_token(live_baobab, app, run, anon),
        await create_stream_token(live_baobab, app, run, anon),
    )
    # Whoever has an account of their own is a visitor here all the same.
    headers = (await create_person(live_baobab, "eve")).headers if signed_in_elsewhere else {}
    monkeypatch.setattr("baobab.tools.agents.run_events._BEAT_SECONDS", 0.05)
    path = f"/v1/{app}/public/runs/{run}/events"
    async with (
        asyncio.timeout(20),
        live_baobab.client.stream("GET", f"{path}?token={token}", headers=headers) as answer,
        live_baobab.client.stream(
            "GET", f"/v1/{app}/agents/asker/runs/{run}/events", headers=live_baobab.owner
        ) as of_owner,
    ):
        pieces = answer.aiter_text()
        await anext(pieces)
        response = await live_baobab.client.post(f"/v1/{app}/secure", json={}, headers=live_baobab.owner)
        assert response.status_code == 200, response.text
        async for _ in pieces:
            pass
        # Those who signed in read on.
        beats = of_owner.aiter_text()
        for _ in range(3):
            await anext(beats)
    for late, again in ((unused_token, ""), (token, "&since_seq=1")):
        refusal = await live_baobab.client.get(f"{path}?token={late}{again}", headers=headers)
        assert refusal.status_code == 401, refusal.text
    async with connect(
        websocket_url(live_baobab, f"/v1/{app}/public/runs/{run}/ws?token={unused_token}&since_seq=1")
    ) as connection:
        assert "requires sign-in" in str(await connection.recv())
        with pytest.raises(ConnectionClosed):
            await connection.recv()
    assert connection.close_code == 1008


async def test_visitors_never_spend_what_the_app_and_its_owner_have(baobab: Baobab) -> None:
    app = await baobab.create_app()
    path = f"/v1/{app}/public/runs/00000000-0000-4000-8000-000000000000/events?token=x"
    answers = [(await baobab.client.get(path)).status_code for _ in range(330)]
    assert set(answers) == {401, 429}
    assert (await baobab.client.get(f"/v1/{app}/config", headers=baobab.owner)).status_code == 200
    response = await baobab.client.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=baobab.owner)
    assert response.status_code < 300


async def test_a_large_body_without_a_credential_is_refused_before_it_is_read(live_baobab: Baobab) -> None:
    app = await live_baobab.create_app()
    address = live_baobab.client.base_url
    assert address.port is not None
    for path, status in ((f"/v1/{app}/kv/_batch", 413), ("/v1/app_000000000000/kv/_batch", 404)):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        head = f"POST {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nContent-Length: 24000000\r\n\r\n"
        writer.write(head.encode())
        # Nothing of the body is sent, and the answer comes all the same.
        assert int((await reader.readline()).split()[1]) == status
        writer.close()


async def test_bodies_in_flight_share_a_budget_in_which_strangers_have_a_part(
    live_baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await live_baobab.create_app()
    budget = BodyBudget(in_all=3_000_000, of_one=1_500_000, of_anonymous=1_000_000)
    monkeypatch.setattr("baobab.http.endpoint.BODIES", budget)
    other = await create_key(live_baobab)
    address = live_baobab.client.base_url
    assert address.port is not None
    _, writer = await asyncio.open_connection(address.host, address.port)
    head = f"POST /v1/{app}/kv/_batch HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nContent-Length: 900000\r\n\r\n"
    # Half-sent bodies count for what they said they would be.
    writer.write(head.encode() + b'{"ops": [')
    await writer.drain()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not budget._anonymous:
            await asyncio.sleep(0.001)
    body = {"ops": [{"op": "set", "key": f"k{number}", "value": "x" * 1500} for number in range(90)]}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await live_baobab.client.post(f"/v1/{app}/kv/_batch", json=body)).status_code != 503:
            await asyncio.sleep(0.001)
    refusal = await live_baobab.client.post(f"/v1/{app}/kv/_batch", json=body)
    assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "2")
    for by in (live_baobab.owner, other):
        assert (await live_baobab.client.post(f"/v1/{app}/kv/_batch", json=body, headers=by)).status_code == 200
    writer.close()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await live_baobab.client.post(f"/v1/{app}/kv/_batch", json=body)).status_code == 503:
            await asyncio.sleep(0.001)
