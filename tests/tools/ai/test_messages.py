"""Anthropic's own client, told nothing but where the gateway is: whichever model answers."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anthropic
import pytest
import pytest_asyncio
from pydantic import BaseModel

from baobab.runtime.gateway.gateway import Gateway
from tests.tools.ai.conftest import HELLO, LAB_KEY, MINI, OTHER_KEY, PRICE, TEXT, Installation, told

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Relayed to the vendor of the wire; told in its words by a provider of another wire, and by the built-in model.
CLAUDE, ECHO = "claude-haiku-4-5", "baobab/echo"
WEATHER: Any = {"name": "get_weather", "description": "The weather.", "input_schema": {"type": "object"}}
USER: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
PICTURE: Any = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


class Person(BaseModel):
    name: str
    age: int


def official(world: Installation, **options: Any) -> anthropic.AsyncAnthropic:
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    settings = {"base_url": world.address, "api_key": world.key, "max_retries": 0, "http_client": http}
    return anthropic.AsyncAnthropic(**{**settings, **options})


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: Installation) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with official(world) as one:
        yield one


async def post(world: Installation, **body: Any) -> Any:
    asked = {"model": CLAUDE, "max_tokens": 100, "messages": HELLO, **body}
    return await world.client.post("/v1/messages", json=asked, headers=world.owner)


@pytest.mark.parametrize("model", [CLAUDE, MINI])
async def test_a_message(client: anthropic.AsyncAnthropic, model: str) -> None:
    message = await client.messages.create(model=model, max_tokens=100, messages=USER)
    assert [block.text for block in message.content if block.type == "text"] == [TEXT]
    assert (message.role, message.stop_reason) == ("assistant", "end_turn")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize("model", [CLAUDE, MINI])
async def test_a_streamed_message(client: anthropic.AsyncAnthropic, model: str) -> None:
    async with client.messages.stream(model=model, max_tokens=100, messages=USER) as stream:
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()
    assert len(texts) == 7
    assert "".join(texts) == TEXT
    assert message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 7)


async def test_the_beta_client_is_answered_too(client: anthropic.AsyncAnthropic) -> None:
    message = await client.beta.messages.create(model=ECHO, max_tokens=100, messages=USER)
    assert message.stop_reason == "end_turn"


@pytest.mark.parametrize("server", ["anthropic", "lab"])
@pytest.mark.parametrize("calls", [1, 3])
async def test_tools_are_called_and_their_results_answered(
    world: Installation, client: anthropic.AsyncAnthropic, server: str, calls: int
) -> None:
    model = world.lab(f"tools:{calls}", server=server)
    first = await client.messages.create(model=model, max_tokens=100, messages=USER, tools=[WEATHER])
    uses = [block for block in first.content if block.type == "tool_use"]
    assert first.stop_reason == "tool_use"
    assert [(use.name, use.input) for use in uses] == [("get_weather", {"city": "Paris"})] * calls
    results: Any = [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"} for use in uses]
    history: Any = [*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = await client.messages.create(model=model, max_tokens=100, messages=history, tools=[WEATHER])
    assert [block.text for block in second.content if block.type == "text"] == [TEXT]


@pytest.mark.parametrize("server", ["anthropic", "lab"])
async def test_calls_of_tools_in_a_stream_are_put_together(
    world: Installation, client: anthropic.AsyncAnthropic, server: str
) -> None:
    model = world.lab("tools:2", server=server)
    async with client.messages.stream(model=model, max_tokens=100, messages=USER, tools=[WEATHER]) as stream:
        message = await stream.get_final_message()
    uses = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use"
    assert [use.input for use in uses] == [{"city": "Paris"}] * 2
    assert len({use.id for use in uses}) == 2


async def test_a_call_that_the_limit_has_cut_off_is_told_as_far_as_it_goes(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    message = await client.messages.create(model=world.lab("cut-off"), max_tokens=5, messages=USER, tools=[WEATHER])
    assert message.stop_reason == "max_tokens"
    assert [block.input for block in message.content if block.type == "tool_use"] == [{}]


async def test_the_built_in_model_plans_and_quotes_results(client: anthropic.AsyncAnthropic) -> None:
    asked: Any = [
        {"role": "user", "content": '/call get_weather {"city": "Paris"}\n/call get_weather {"city": "Rome"}'}
    ]
    first = await client.messages.create(model=ECHO, max_tokens=200, messages=asked, tools=[WEATHER])
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [use.input for use in uses] == [{"city": "Paris"}, {"city": "Rome"}]
    seen = [{"type": "text", "text": "a picture"}, {"type": "image", "source": PICTURE}]
    results: Any = [
        {"type": "tool_result", "tool_use_id": uses[0].id, "content": seen},
        {"type": "tool_result", "tool_use_id": uses[1].id, "content": "no such city", "is_error": True},
    ]
    history: Any = [*asked, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = await client.messages.create(model=ECHO, max_tokens=200, messages=history, tools=[WEATHER])
    assert second.content[0].type == "text"


async def test_an_answer_by_a_schema(client: anthropic.AsyncAnthropic) -> None:
    asked: Any = [{"role": "user", "content": "Ada, 36"}]
    message = await client.messages.parse(model=ECHO, max_tokens=100, messages=asked, output_format=Person)
    assert isinstance(message.parsed_output, Person)


async def test_what_is_said_otherwise_elsewhere_is_translated(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    content: Any = [
        {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": PICTURE},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "title": "a.pdf", "source": {**PICTURE, "media_type": "application/pdf"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
    ]
    messages: Any = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}]},
        {"role": "user", "content": "Well?"},
    ]
    system: Any = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    choice: Any = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    await client.messages.create(
        model=MINI,
        max_tokens=64,
        messages=messages,
        system=system,
        tools=[WEATHER],
        tool_choice=choice,
        stop_sequences=["END"],
        metadata={"user_id": "u1"},
        extra_body={"temperature": 0.5, "field_of_tomorrow": 1},
    )
    pixel = "base64,iVBORw0KGgo="
    assert world.fake.requests[-1].path == "/v1/chat/completions"
    assert world.fake.requests[-1].json == {
        "model": "gpt-4o-mini",
        "max_completion_tokens": 64,
        "temperature": 0.5,
        "field_of_tomorrow": 1,
        "stop": ["END"],
        "user": "u1",
        "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "tools": [
            {
                "type": "function",
                "function": {"name": "get_weather", "description": "The weather.", "parameters": {"type": "object"}},
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;{pixel}"}},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;{pixel}"}},
                    {"type": "text", "text": "plain"},
                ],
            },
            {"role": "assistant", "content": None},
            {"role": "user", "content": "Well?"},
        ],
    }


async def test_the_vendor_is_sent_what_was_asked_with_its_own_credential(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    system: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    further: Any = {"top_k": 5, "field_of_tomorrow": {"a": [1]}}
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    await client.messages.create(
        model=CLAUDE, max_tokens=2000, messages=USER, system=system, thinking=thinking, extra_body=further
    )
    asked = world.fake.requests[-1]
    assert asked.path == "/v1/messages"
    assert asked.json == {
        "model": CLAUDE,
        "max_tokens": 2000,
        "messages": USER,
        "system": system,
        "thinking": thinking,
        **further,
    }
    assert asked.headers["x-api-key"] in (OTHER_KEY, LAB_KEY)
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert world.key not in str(asked.headers)


async def test_each_refusal_is_the_error_that_the_client_has_for_it(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    expected: tuple[tuple[str, type[anthropic.APIStatusError], int, str], ...] = (
        ("400", anthropic.BadRequestError, 400, "invalid_request_error"),
        ("context", anthropic.BadRequestError, 400, "invalid_request_error"),
        ("404", anthropic.NotFoundError, 404, "not_found_error"),
        ("429:5", anthropic.RateLimitError, 429, "rate_limit_error"),
        ("529", anthropic.InternalServerError, 502, "api_error"),
    )
    for behaviour, kind, status, named in expected:
        for server in ("anthropic", "lab"):
            model = world.lab(behaviour, server=server)
            with pytest.raises(kind) as refused:
                await client.messages.create(model=model, max_tokens=100, messages=USER)
            body: Any = refused.value.body
            assert refused.value.status_code == status
            assert (body["type"], body["error"]["type"]) == ("error", named)
    assert (await post(world, model=world.lab("context", server="anthropic"))).json()["error"]["code"] == (
        "context_length_exceeded"
    )
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(model="nobody/knows", max_tokens=100, messages=USER)
    async with official(world, api_key="bb_sk_" + "x" * 40) as theirs:
        with pytest.raises(anthropic.AuthenticationError):
            await theirs.messages.create(model=ECHO, max_tokens=100, messages=USER)


async def test_a_bearer_token_is_the_same_as_a_key_and_wins_over_it(world: Installation) -> None:
    async with official(world, api_key=None, auth_token=world.key) as theirs:
        assert (await theirs.messages.create(model=ECHO, max_tokens=100, messages=USER)).role == "assistant"
    asked = {"model": ECHO, "max_tokens": 100, "messages": HELLO}
    both = {**world.owner, "x-api-key": "bb_sk_" + "x" * 40}
    assert (await world.client.post("/v1/messages", json=asked, headers=both)).status_code == 200
    alone = {"x-api-key": world.key}
    assert (await world.client.post("/v1/messages", json=asked, headers=alone)).status_code == 200
    # It is this wire's header: elsewhere it is nobody's.
    assert (await world.client.post("/v1/chat/completions", json=asked, headers=alone)).status_code == 401


async def test_what_fails_at_first_is_tried_again(world: Installation, client: anthropic.AsyncAnthropic) -> None:
    for server in ("anthropic", "lab"):
        message = await client.messages.create(
            model=world.lab("flaky:2", server=server, id=f"{server}/wavering"), max_tokens=100, messages=USER
        )
        assert message.stop_reason == "end_turn"


@pytest.mark.parametrize("server", ["anthropic", "lab"])
@pytest.mark.parametrize("behaviour", ["drop:3", "error-frame:3", "malformed-sse", "no-done"])
async def test_a_stream_that_breaks_off_is_an_error_of_the_client(
    world: Installation, client: anthropic.AsyncAnthropic, server: str, behaviour: str
) -> None:
    model = world.lab(behaviour, server=server)
    stream = await client.messages.create(model=model, max_tokens=100, messages=USER, stream=True)
    with pytest.raises(anthropic.APIStatusError) as broken:
        async for _ in stream:
            pass
    body: Any = broken.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "api_error")
    assert "in the middle" not in str(body)


async def test_an_error_in_place_of_an_answer_costs_nothing(world: Installation) -> None:
    before = await world.spent()
    refused = await post(world, model=world.lab("error-frame:0", server="anthropic"), stream=True)
    assert (refused.status_code, refused.json()["error"]["type"]) == (502, "api_error")
    assert await world.spent() == before


async def test_each_token_costs_its_price(world: Installation) -> None:
    price = replace(PRICE, cache_write=187_500_000, cache_write_hour=300_000_000)
    gateway = world.house.services.part(Gateway)
    for behaviour, cost in (
        ("priced", 11 * 150 + 7 * 600),
        ("cached:4", 7 * 150 + 4 * 75 + 7 * 600),
        # 187.5 nano-dollars a token for two of them, and the whole call rounded up.
        ("written:4", 7 * 150 + 375 + 2 * 300 + 7 * 600),
    ):
        model = world.lab(behaviour, server="anthropic")
        listed = [replace(gateway.find(model), price=price)]
        gateway.catalogue.offer("anthropic", listed)
        for stream in (False, True):
            before = await world.spent()
            answer = await post(world, model=model, stream=stream)
            assert answer.status_code == 200
            assert await world.spent() - before == cost
            if not stream:
                assert answer.headers["x-baobab-cost-usd"] == f"0.{cost:09d}"
                assert answer.headers["x-baobab-model"] == model


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("service_tier", "priority"),
        ("speed", "fast"),
        ("n", 100),
        ("max_completion_tokens", 100_000),
        ("inference_geo", "us"),
        ("mcp_servers", [{"type": "url", "name": "a", "url": "https://example.com"}]),
        ("container", "container_1"),
        ("workspace_id", "wrkspc_1"),
        ("tools", [{"type": "web_search_20250305", "name": "web_search"}]),
        ("tools", [{"type": "code_execution_20250825", "name": "code_execution"}]),
    ],
)
async def test_what_has_no_price_is_refused(world: Installation, field: str, value: Any) -> None:
    asked = len(world.fake.requests)
    refused = await post(world, **{field: value})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == field
    assert len(world.fake.requests) == asked


async def test_tools_that_the_caller_runs_are_passed_on_to_their_vendor_only(world: Installation) -> None:
    bash = [{"type": "bash_20250124", "name": "bash"}]
    assert (await post(world, tools=bash)).status_code == 200
    assert world.fake.requests[-1].json["tools"] == bash
    refused = await post(world, model=MINI, tools=bash)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[0].type")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
            "messages[0].content[0].source.type",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}]},
            "messages[0].content[0].name",
        ),
        ({"tool_choice": {"type": "perhaps"}}, "tool_choice.type"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
    ],
)
async def test_what_another_model_has_no_words_for_is_refused_by_its_name(
    world: Installation, body: dict[str, Any], param: str
) -> None:
    refused = await post(world, model=ECHO, **body)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    assert refused.json()["error"]["param"] == param


async def test_a_message_without_its_limit_is_refused_in_the_words_of_the_wire(world: Installation) -> None:
    asked = {"model": ECHO, "messages": HELLO}
    refused = await world.client.post("/v1/messages", json=asked, headers=world.owner)
    assert refused.status_code == 400
    assert refused.json()["type"] == "error"
    assert "max_tokens" in refused.json()["error"]["message"]


async def test_the_built_in_model_stops_at_the_limit(world: Installation) -> None:
    answer = (await post(world, model=ECHO, max_tokens=3)).json()
    assert (answer["stop_reason"], answer["usage"]["output_tokens"]) == ("max_tokens", 3)


async def test_thoughts_are_told_to_those_who_ask_for_them(world: Installation) -> None:
    thoughtful = world.lab("thoughts")
    for stream in (False, True):
        for thinking in ({"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}):
            answer = await post(world, model=thoughtful, thinking=thinking, stream=stream)
            kinds = (
                [one["content_block"]["type"] for one in told(answer.text) if one["type"] == "content_block_start"]
                if stream
                else [block["type"] for block in answer.json()["content"]]
            )
            assert kinds == (["thinking", "text"] if thinking["type"] == "enabled" else ["text"]), json.dumps(kinds)
