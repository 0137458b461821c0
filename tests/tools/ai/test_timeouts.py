"""How long models may take: by the installation, by app, by model server and by request."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest

from baobab.tools.ai import read_ahead
from tests.servers import TIMEOUT_SECONDS
from tests.tools.ai.conftest import HELLO, MINI, OTHER_KEY, TEXT, Installation, add_translated_model, open_installation
from tests.tools.ai.test_streaming import open_stream

SILENT = "slow-first:30"
SLOW = "slow-first:0.3"


@pytest.fixture
async def world(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Installation]:
    variables = {**settings, "BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.0/8"}
    further = {"ANTHROPIC_API_KEY": OTHER_KEY, "ANTHROPIC_BASE_URL": "{url}"}
    async with open_installation(tmp_path / "data", variables, **further) as installation:
        yield installation


async def test_a_request_says_how_long_it_may_take(world: Installation) -> None:
    body = {"model": world.add_model(SILENT), "messages": HELLO}
    for timeout in ("0.2", "total=0.2", "first=20, total=0.2"):
        headers = {**world.owner, "x-baobab-timeout": timeout}
        answer = await world.client.post("/v1/chat/completions", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        assert answer.headers["x-should-retry"] == "false"
    streamed_body = {**body, "stream": True}
    headers = {**world.owner, "x-baobab-timeout": "first=0.2"}
    answer = await world.client.post("/v1/chat/completions", json=streamed_body, headers=headers)
    assert answer.status_code == 504
    assert len(world.fake.requests) == 4
    await world.get_settled_balance()
    assert await world.get_spent() == 0


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/embeddings"])
async def test_so_do_requests_on_every_wire(world: Installation, path: str) -> None:
    model = world.add_model(SILENT, modality="embedding" if path == "/v1/embeddings" else "chat")
    body = {"model": model, "max_tokens": 9, "messages": HELLO} if path == "/v1/messages" else {"model": model}
    body |= {} if path == "/v1/messages" else {"input": "Hello!"}
    headers = {**world.owner, "x-baobab-timeout": "0.2"}
    answer = await world.client.post(path, json=body, headers=headers)
    assert answer.status_code == 504, answer.text


@pytest.mark.parametrize("timeout", ["soon", "0", "-1", "7201", "total=", "all=5", "total=5,", "1e3"])
async def test_a_time_that_cannot_be_read_is_refused(world: Installation, timeout: str) -> None:
    headers = {**world.owner, "x-baobab-timeout": timeout}
    answer = await world.client.post("/v1/chat/completions", json={"messages": HELLO}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-baobab-timeout")


async def test_an_app_has_bounds_that_a_request_can_only_tighten(world: Installation) -> None:
    app_id, model = await world.create_app(), world.add_model(SILENT)
    config = f"/v1/{app_id}/ai/config"
    put = await world.client.put(config, json={"timeouts": {"total": 1}}, headers=world.owner)
    assert put.json()["config"]["timeouts"] == {"total": 1}
    headers = {**world.owner, "x-baobab-timeout": "60"}
    assert (await world.chat(model, path=f"/v1/{app_id}", by=headers)).status_code == 504
    # Elsewhere it is not in force.
    assert (await world.chat(world.add_model(SLOW))).status_code == 200
    put = await world.client.put(config, json={"timeouts": None}, headers=world.owner)
    assert put.json()["config"]["timeouts"] is None
    refusal = await world.client.put(config, json={"timeouts": {"total": 7201}}, headers=world.owner)
    assert refusal.status_code == 400


async def test_so_has_a_model_server(world: Installation) -> None:
    server = {"name": "mine", "url": f"{world.fake.url}/v1", "timeouts": {"total": 1}}
    response = await world.client.post("/v1/ai/servers", json=server, headers=world.owner)
    assert (response.status_code, response.json()["timeouts"]) == (201, {"total": 1}), response.text
    assert (await world.chat(f"mine/{SILENT}")).status_code == 504
    changed_response = await world.client.patch("/v1/ai/servers/mine", json={"timeouts": None}, headers=world.owner)
    assert changed_response.json()["timeouts"] is None


async def test_the_installation_bounds_everybody(tmp_path: Path, settings: dict[str, str]) -> None:
    variables = {**settings, "BAOBAB_PLAN": "enterprise", "BAOBAB_AI_TOTAL_SECONDS": "1"}
    async with open_installation(tmp_path / "bounded", variables) as world:
        for model in (world.add_model(SILENT), world.add_model("slow-tokens:30")):
            headers = {**world.owner, "x-baobab-timeout": "60"}
            assert (await world.chat(model, by=headers)).status_code in (504, 200)
            answer = await world.chat(model, by=headers, stream=True)
            assert "upstream_timeout" in answer.text
        assert len(world.fake.requests) == 4


async def test_a_translated_model_has_the_same_time(world: Installation) -> None:
    model = await add_translated_model(world, SILENT)
    headers = {**world.owner, "x-baobab-timeout": "first=0.3, total=1"}
    for stream in (False, True):
        request_count = len(world.fake.requests)
        answer = await world.chat(model, by=headers, stream=stream)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        assert len(world.fake.requests) == request_count + 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "BEAT_SECONDS", 0.05)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("behaviour", [SLOW, "slow-tokens:0.1"])
async def test_a_stream_is_alive_while_its_model_thinks(world: Installation, behaviour: str) -> None:
    for model in (world.add_model(behaviour), await add_translated_model(world, behaviour)):
        answer = await world.chat(model, stream=True)
        assert answer.text.count(":\n\n") >= 2
        assert answer.text.endswith("data: [DONE]\n\n")
        async with world.build_client() as client:
            stream: Any = await client.chat.completions.create(model=model, messages=HELLO, stream=True)
            words = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            assert "".join(words) == TEXT
            events: Any = await client.responses.create(model=model, input="Hello!", stream=True)
            assert [event async for event in events][-1].response.output_text == TEXT


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("behaviour", [SLOW, "slow-tokens:0.1"])
async def test_so_is_one_on_the_other_wire(world: Installation, behaviour: str) -> None:
    translated_model = await add_translated_model(world, behaviour)
    body = {"model": translated_model, "max_tokens": 9, "messages": HELLO, "stream": True}
    answer = await world.client.post("/v1/messages", json=body, headers=world.owner)
    assert answer.text.count('event: ping\ndata: {"type":"ping"}\n\n') >= 2
    http = httpx2.AsyncClient(trust_env=False)
    async with anthropic.AsyncAnthropic(base_url=world.address, api_key=world.key, http_client=http) as client:
        for model in (translated_model, world.add_model(behaviour)):
            arguments: Any = {"model": model, "max_tokens": 9, "messages": HELLO}
            async with client.messages.stream(**arguments) as stream:
                assert await stream.get_final_text() == TEXT


@pytest.mark.usefixtures("quick")
async def test_what_fails_after_a_while_is_told_by_an_event(world: Installation) -> None:
    headers = {**world.owner, "x-baobab-timeout": "0.3"}
    answer = await world.chat(world.add_model(SILENT), stream=True, by=headers)
    assert answer.status_code == 200
    last = json.loads(answer.text.rstrip().rpartition("data: ")[2])
    assert last["error"]["code"] == "upstream_timeout"
    await world.get_settled_balance()
    assert await world.get_spent() == 0


@pytest.mark.usefixtures("quick")
async def test_a_caller_who_leaves_while_a_model_thinks_frees_the_provider(world: Installation) -> None:
    request_count, broken_off_count = len(world.fake.requests), world.fake.broken_off
    reader, writer = await open_stream(world, world.add_model(SILENT))
    await reader.readuntil(b":\n\n")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        # On a busy machine the first sign of life is older than the request to the provider.
        while len(world.fake.requests) == request_count:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while world.fake.broken_off == broken_off_count:
            await asyncio.sleep(0.01)
    assert (await world.get_settled_balance()).reserved_nanos == 0
    assert await world.get_spent() == 0


async def test_quick_streams_have_nothing_in_between(world: Installation) -> None:
    assert ":\n\n" not in (await world.chat(MINI, stream=True)).text
