"""What holds for Anthropic's messages and OpenAI's responses alike, relayed to their vendors or told in their words.

What each of them has of its own is in test_messages.py and test_responses.py.
"""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import anthropic
import openai
import pytest

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Price
from tests.tools.ai.conftest import HELLO, PRICE, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = "baobab/echo"


@dataclass(frozen=True)
class WireRequest:
    """A wire: what is asked on it, whose it is, its official client, and what a token costs to keep at its vendor."""

    path: str
    body: dict[str, Any]
    vendor: str
    official: ModuleType
    price: Price
    cache_write_cost: int
    """Nano-dollars for four tokens that were written to the vendor's cache."""

    async def post(self, world: Installation, **body: Any) -> Any:
        return await world.client.post(self.path, json={**self.body, **body}, headers=world.owner)

    def client(self, world: Installation) -> Any:
        options: dict[str, Any] = {"api_key": world.key, "max_retries": 0}
        if self.official is openai:
            return world.build_client(max_retries=0)
        http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
        return anthropic.AsyncAnthropic(base_url=world.address, http_client=http, **options)

    async def ask(self, client: Any, **further: Any) -> Any:
        messages = client.messages if self.official is anthropic else client.responses
        return await messages.create(**self.body, **further)


WIRES = {
    "messages": WireRequest(
        "/v1/messages",
        {"max_tokens": 100, "messages": HELLO},
        "anthropic",
        anthropic,
        replace(PRICE, cache_write=187_500_000, cache_write_hour=300_000_000),
        # 187.5 a token for two of them, 300 for the two that are kept for an hour.
        375 + 2 * 300,
    ),
    "responses": WireRequest(
        "/v1/responses", {"input": HELLO}, "openai", openai, replace(PRICE, cache_write=187_500_000), 750
    ),
}


@pytest.fixture(params=list(WIRES))
def wire(request: pytest.FixtureRequest) -> WireRequest:
    return WIRES[request.param]


@pytest.fixture(params=["relayed", "translated"])
def server(request: pytest.FixtureRequest, wire: WireRequest) -> str:
    """Whose server is asked: the vendor's of the wire, or another."""
    return wire.vendor if request.param == "relayed" else "lab"


@pytest.mark.parametrize(
    ("behaviour", "kind", "status"),
    [
        ("400", "BadRequestError", 400),
        ("context", "BadRequestError", 400),
        ("404", "NotFoundError", 404),
        ("429:5", "RateLimitError", 429),
        ("529", "InternalServerError", 502),
        ("shapeless", "InternalServerError", 502),
    ],
)
async def test_each_refusal_is_the_error_that_the_client_has_for_it(
    world: Installation, wire: WireRequest, server: str, behaviour: str, kind: str, status: int
) -> None:
    model = world.add_model(behaviour, server=server)
    async with wire.client(world) as client:
        with pytest.raises(getattr(wire.official, kind)) as refusal:
            await wire.ask(client, model=model)
    assert refusal.value.status_code == status
    error = (await wire.post(world, model=model)).json()["error"]
    assert (error["code"] == "context_length_exceeded") is (behaviour == "context")


async def test_what_fails_at_first_is_tried_again(world: Installation, wire: WireRequest, server: str) -> None:
    model = world.add_model("flaky:2", server=server, id=f"{server}/wavering-{wire.vendor}")
    assert (await wire.post(world, model=model)).status_code == 200


@pytest.mark.parametrize("behaviour", ["drop:5", "error-frame:5", "error-beside:5", "malformed-sse", "stop:5"])
async def test_a_stream_that_breaks_off_is_an_error_of_the_client(
    world: Installation, wire: WireRequest, server: str, behaviour: str
) -> None:
    model = world.add_model(behaviour, server=server)
    async with wire.client(world) as client:
        stream = await wire.ask(client, model=model, stream=True)
        with pytest.raises(wire.official.APIError) as failure:
            async for _ in stream:
                pass
    assert "in the middle" not in str(failure.value)
    *_, last = parse_events((await wire.post(world, model=model, stream=True)).text)
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")


async def test_an_error_in_place_of_an_answer_costs_nothing(
    world: Installation, wire: WireRequest, server: str
) -> None:
    before = await world.get_spent()
    model = world.add_model("error-frame:0", server=server)
    refusal = await wire.post(world, model=model, stream=True)
    assert (refusal.status_code, refusal.json()["error"]["type"]) == (502, "api_error")
    assert await world.get_spent() == before


async def test_each_token_costs_its_price(world: Installation, wire: WireRequest) -> None:
    gateway = world.application.services.part(Gateway)
    for behaviour, cost in (
        ("priced", 11 * 150 + 7 * 600),
        ("cached:4", 7 * 150 + 4 * 75 + 7 * 600),
        ("written:4", 7 * 150 + wire.cache_write_cost + 7 * 600),
    ):
        model = world.add_model(behaviour, server=wire.vendor)
        gateway.catalogue.register_models(wire.vendor, [replace(gateway.get_model(model), price=wire.price)])
        for stream in (False, True):
            before = await world.get_spent()
            answer = await wire.post(world, model=model, stream=stream)
            assert answer.status_code == 200
            assert await world.get_spent() - before == cost
            assert answer.headers["x-baobab-model"] == model
            assert stream or answer.headers["x-baobab-cost-usd"] == f"0.{cost:09d}"


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("messages", "speed", "fast"),
        ("messages", "max_completion_tokens", 100_000),
        ("messages", "inference_geo", "us"),
        ("messages", "mcp_servers", [{"type": "url", "name": "a", "url": "https://example.com"}]),
        ("messages", "container", "container_1"),
        ("messages", "workspace_id", "wrkspc_1"),
        ("messages", "fallbacks", [{"model": "claude-opus-4-8"}]),
        ("messages", "tools[0]", [{"type": "web_fetch_20250910", "name": "web_fetch"}]),
        ("messages", "tools[0]", [{"type": "code_execution_20250825", "name": "code_execution"}]),
        ("responses", "conversation", "conv_1"),
        ("responses", "prompt", {"id": "pmpt_1"}),
        ("responses", "background", True),
        ("responses", "max_tokens", 100_000),
        ("responses", "moderation", {"model": "omni-moderation-latest"}),
        ("responses", "tools[0]", [{"type": "namespace", "name": "a", "tools": [{"type": "web_search"}]}]),
        ("responses", "tools[0]", [{"type": "code_interpreter", "container": {"type": "auto"}}]),
        ("responses", "tools[0]", [{"type": "mcp", "server_label": "a", "server_url": "https://example.com"}]),
        *((name, field, value) for name in WIRES for field, value in (("service_tier", "priority"), ("n", 100))),
    ],
)
async def test_what_is_not_here_or_has_no_price_is_refused(
    world: Installation, name: str, field: str, value: Any
) -> None:
    request_count = len(world.fake.requests)
    arguments = {field.partition("[")[0]: value}
    refusal = await WIRES[name].post(world, model=world.add_model("plain", server=WIRES[name].vendor), **arguments)
    if field == "tools[0]":
        assert f"`{value[0]['type']}`" in refusal.json()["error"]["message"]
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, field)
    assert len(world.fake.requests) == request_count


def _block(**block: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [block]}]}


def _item(**item: Any) -> dict[str, Any]:
    return {"input": [item]}


@pytest.mark.parametrize(
    ("name", "body", "param"),
    [
        ("messages", {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ("messages", {"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ("messages", _block(type="video"), "messages[0].content[0].type"),
        ("messages", _block(type="image", source={"type": "file"}), "messages[0].content[0].source.type"),
        (
            "messages",
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}]},
            "messages[0].content[0].name",
        ),
        ("messages", {"tool_choice": {"type": "perhaps"}}, "tool_choice.type"),
        ("messages", {"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ("responses", _item(type="web_search_call"), "input[0].type"),
        ("responses", _item(role="wizard", content="x"), "input[0].role"),
        ("responses", _item(role="user", content=[{"type": "video"}]), "input[0].content[0].type"),
        (
            "responses",
            _item(role="user", content=[{"type": "input_image", "file_id": "f"}]),
            "input[0].content[0].image_url",
        ),
        ("responses", {"tools": [{"type": "apply_patch"}]}, "tools[0].type"),
        ("responses", {"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ("responses", {"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ],
)
async def test_what_another_model_has_no_words_for_is_refused_by_its_name(
    world: Installation, name: str, body: dict[str, Any], param: str
) -> None:
    refusal = await WIRES[name].post(world, model=ECHO, **body)
    assert (refusal.status_code, refusal.json()["error"]["type"]) == (400, "invalid_request_error")
    assert refusal.json()["error"]["param"] == param
