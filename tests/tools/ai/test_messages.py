"""Anthropic's own client, told nothing but where the gateway is: whichever model answers."""

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anthropic
import pytest
import pytest_asyncio
from pydantic import BaseModel

from baobab.runtime.gateway.gateway import Gateway
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, LAB_KEY, MINI, OTHER_KEY, TEXT, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Relayed to the vendor of the wire; told in its words by a provider of another wire, and by the built-in model.
CLAUDE, ECHO = "claude-haiku-4-5", "baobab/echo"
WEATHER: Any = {"name": "get_weather", "description": "The weather.", "input_schema": {"type": "object"}}
USER: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
PICTURE: Any = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


class Person(BaseModel):
    name: str
    age: int


def build_client(world: Installation, **options: Any) -> anthropic.AsyncAnthropic:
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    settings = {"base_url": world.address, "api_key": world.key, "max_retries": 0, "http_client": http}
    return anthropic.AsyncAnthropic(**{**settings, **options})


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: Installation) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with build_client(world) as one:
        yield one


async def post_message(world: Installation, **body: Any) -> Any:
    request_body = {"model": CLAUDE, "max_tokens": 100, "messages": HELLO, **body}
    return await world.client.post("/v1/messages", json=request_body, headers=world.owner)


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


@pytest.mark.parametrize("server", ["anthropic", "lab"])
async def test_the_tool_runner_goes_on_without_a_thread(
    world: Installation, client: anthropic.AsyncAnthropic, server: str
) -> None:
    cities: list[str] = []

    @anthropic.beta_async_tool
    async def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return "rain"

    model = world.add_model("tools", server=server)
    runner = client.beta.messages.tool_runner(model=model, max_tokens=100, messages=USER, tools=[get_weather])
    last = await runner.until_done()
    assert ("".join(block.text for block in last.content if block.type == "text"), cities) == (TEXT, ["Paris"])


async def test_a_thread_is_refused_in_the_words_that_clients_look_for(world: Installation) -> None:
    refusal = await post_message(world, thread={"type": "create"})
    error = refusal.json()["error"]
    assert (refusal.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "thread")
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


async def test_nothing_is_null_that_strict_clients_take_to_be_there(world: Installation) -> None:
    whole = (await post_message(world, model=world.add_model("plain"))).json()
    assert whole["content"] == [{"type": "text", "text": TEXT}]
    events = parse_events((await post_message(world, model=world.add_model("plain"), stream=True)).text)
    content_blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert content_blocks == [{"type": "text", "text": ""}]


async def test_nothing_is_fetched_before_a_model_is_asked_in_other_words(world: Installation) -> None:
    from litellm import anthropic_beta_headers_manager as headers

    hosts: set[str] = set()
    watching = True

    def watch(event: str, arguments: Any) -> None:
        if watching and event == "socket.getaddrinfo":
            hosts.add(str(arguments[0]))

    sys.addaudithook(watch)
    headers._BETA_HEADERS_CONFIG = None
    answer = await world.chat(world.add_model("plain", server="anthropic"))
    watching = False
    assert answer.status_code == 200, answer.text
    assert hosts <= {"127.0.0.1", "localhost"}


async def test_the_beta_client_is_answered_too(client: anthropic.AsyncAnthropic) -> None:
    message = await client.beta.messages.create(model=ECHO, max_tokens=100, messages=USER)
    assert message.stop_reason == "end_turn"


@pytest.mark.parametrize("server", ["anthropic", "lab"])
@pytest.mark.parametrize("calls", [1, 3])
async def test_tools_are_called_and_their_results_answered(
    world: Installation, client: anthropic.AsyncAnthropic, server: str, calls: int
) -> None:
    model = world.add_model(f"tools:{calls}", server=server)
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
    model = world.add_model("tools:2", server=server)
    async with client.messages.stream(model=model, max_tokens=100, messages=USER, tools=[WEATHER]) as stream:
        message = await stream.get_final_message()
    uses = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use"
    assert [use.input for use in uses] == [{"city": "Paris"}] * 2
    assert len({use.id for use in uses}) == 2


async def test_a_call_that_the_limit_has_cut_off_is_told_as_far_as_it_goes(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    message = await client.messages.create(
        model=world.add_model("cut-off"), max_tokens=5, messages=USER, tools=[WEATHER]
    )
    assert message.stop_reason == "max_tokens"
    assert [block.input for block in message.content if block.type == "tool_use"] == [{}]


async def test_the_built_in_model_plans_and_quotes_results(client: anthropic.AsyncAnthropic) -> None:
    question: Any = [
        {"role": "user", "content": '/call get_weather {"city": "Paris"}\n/call get_weather {"city": "Rome"}'}
    ]
    first = await client.messages.create(model=ECHO, max_tokens=200, messages=question, tools=[WEATHER])
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [use.input for use in uses] == [{"city": "Paris"}, {"city": "Rome"}]
    content = [{"type": "text", "text": "a picture"}, {"type": "image", "source": PICTURE}]
    results: Any = [
        {"type": "tool_result", "tool_use_id": uses[0].id, "content": content},
        {"type": "tool_result", "tool_use_id": uses[1].id, "content": "no such city", "is_error": True},
    ]
    history: Any = [*question, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = await client.messages.create(model=ECHO, max_tokens=200, messages=history, tools=[WEATHER])
    assert second.content[0].type == "text"


async def test_an_answer_by_a_schema(client: anthropic.AsyncAnthropic) -> None:
    messages: Any = [{"role": "user", "content": "Ada, 36"}]
    message = await client.messages.parse(model=ECHO, max_tokens=100, messages=messages, output_format=Person)
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
    request = world.fake.requests[-1]
    assert request.path == "/v1/messages"
    assert request.json == {
        "model": CLAUDE,
        "max_tokens": 2000,
        "messages": USER,
        "system": system,
        "thinking": thinking,
        **further,
    }
    assert request.headers["x-api-key"] in (OTHER_KEY, LAB_KEY)
    assert request.headers["anthropic-version"] == client.default_headers["anthropic-version"]
    assert world.key not in str(request.headers)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_vendor_is_told_of_betas_and_of_nothing_else_that_a_header_says(
    world: Installation, client: anthropic.AsyncAnthropic, *, stream: bool
) -> None:
    headers = {"anthropic-version": "2023-01-01", "anthropic-organization-id": "org", "x-stainless-lang": "c"}
    betas = ["interleaved-thinking-2025-05-14", "context-1m-2025-08-07"]
    # Files that others have sent with the same key; tools where nobody looks for them; what is not known here.
    left_out = ["files-api-2025-04-14", "mid-conversation-tool-changes-2026-07-01", "beta-of-tomorrow-2030-01-01"]
    answer: Any = await client.beta.messages.create(
        model=CLAUDE, max_tokens=100, messages=USER, betas=[*left_out, *betas], stream=stream, extra_headers=headers
    )
    if stream:
        assert [event async for event in answer][-1].type == "message_stop"
    sent_headers = world.fake.requests[-1].headers
    assert (sent_headers["anthropic-beta"], sent_headers["anthropic-version"]) == (",".join(betas), "2023-01-01")
    assert sent_headers["x-api-key"] in (OTHER_KEY, LAB_KEY)
    assert not {"authorization", "cookie", "anthropic-organization-id", "x-stainless-lang"} & set(sent_headers)


async def test_others_than_the_vendor_are_told_of_no_betas(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    betas = ["interleaved-thinking-2025-05-14"]
    await client.beta.messages.create(model=MINI, max_tokens=100, messages=USER, betas=betas)
    assert not [name for name in world.fake.requests[-1].headers if name.lower().startswith("anthropic")]


async def test_a_version_that_is_none_is_refused_by_its_name(world: Installation) -> None:
    request_count = len(world.fake.requests)
    body = {"model": CLAUDE, "max_tokens": 100, "messages": HELLO}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        refusal = await world.client.post(path, json=body, headers={**world.owner, "anthropic-version": "tomorrow"})
        assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "anthropic_version")
    assert len(world.fake.requests) == request_count


async def test_tokens_are_counted_by_the_vendor_where_that_can_be_asked(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    before = await world.get_spent()
    betas = ["token-counting-2024-11-01"]
    plain = await client.messages.count_tokens(model=CLAUDE, messages=USER, system="Be brief.", tools=[WEATHER])
    request = world.fake.requests[-1]
    assert (request.path, plain.input_tokens) == ("/v1/messages/count_tokens", 11)
    assert request.json == {"model": CLAUDE, "messages": USER, "system": "Be brief.", "tools": [WEATHER]}
    assert (await client.beta.messages.count_tokens(model=CLAUDE, messages=USER, betas=betas)).input_tokens == 11
    assert world.fake.requests[-1].headers["anthropic-beta"] == betas[0]
    for behaviour, kind in (("429:5", anthropic.RateLimitError), ("shapeless", anthropic.InternalServerError)):
        with pytest.raises(kind):
            await client.messages.count_tokens(model=world.add_model(behaviour, server="anthropic"), messages=USER)
    assert await world.get_spent() == before


@pytest.mark.parametrize("model", [MINI, ECHO])
async def test_elsewhere_they_are_estimated_and_nobody_is_asked(
    world: Installation, client: anthropic.AsyncAnthropic, model: str
) -> None:
    request_count = len(world.fake.requests)

    async def count_tokens(**further: Any) -> int:
        return (await client.messages.count_tokens(**{"model": model, "messages": USER, **further})).input_tokens

    short = await count_tokens()
    assert 8 <= short <= 24
    # A token for four bytes, whichever part of the request they are in.
    assert await count_tokens(system="x" * 4000) == pytest.approx(short + 1000, abs=20)
    assert await count_tokens(messages=[{"role": "user", "content": "ü" * 2000}]) == pytest.approx(short + 1000, abs=20)
    assert await count_tokens(tools=[{**WEATHER, "description": "x" * 4000}]) > short + 1000
    # A picture has as many as the largest has, however many bytes it is.
    pictures: Any = [{"type": "image", "source": {**PICTURE, "data": "iVBO" * size}} for size in (1, 100_000)]
    one, both = [await count_tokens(messages=[{"role": "user", "content": some}]) for some in (pictures[:1], pictures)]
    assert both - one == pytest.approx(1600, abs=20)
    assert len(world.fake.requests) == request_count


async def test_counting_is_for_those_who_may_ask_and_of_what_can_be_asked(world: Installation) -> None:
    async def post_count(body: Any, headers: Any) -> Any:
        return await world.client.post("/v1/messages/count_tokens", json=body, headers=headers)

    request_body = {"model": ECHO, "messages": HELLO}
    assert (await post_count(request_body, {})).status_code == 401
    answer = await post_count(request_body, {"x-api-key": world.key})
    assert (answer.status_code, answer.headers["x-baobab-model"]) == (200, ECHO)
    assert (await post_count({**request_body, "model": "nobody/knows"}, world.owner)).status_code == 404
    refusal = await post_count({**request_body, "tools": [{"type": "web_fetch_20250910", "name": "s"}]}, world.owner)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "tools[0]")


async def test_whoever_may_not_ask_and_what_is_not_there_are_errors_of_the_client(
    world: Installation, client: anthropic.AsyncAnthropic
) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(model="nobody/knows", max_tokens=100, messages=USER)
    async with build_client(world, api_key="bb_sk_" + "x" * 40) as theirs:
        with pytest.raises(anthropic.AuthenticationError):
            await theirs.messages.create(model=ECHO, max_tokens=100, messages=USER)


async def test_a_bearer_token_is_the_same_as_a_key_and_wins_over_it(world: Installation) -> None:
    async with build_client(world, api_key=None, auth_token=world.key) as theirs:
        assert (await theirs.messages.create(model=ECHO, max_tokens=100, messages=USER)).role == "assistant"
    body = {"model": ECHO, "max_tokens": 100, "messages": HELLO}
    both = {**world.owner, "x-api-key": "bb_sk_" + "x" * 40}
    assert (await world.client.post("/v1/messages", json=body, headers=both)).status_code == 200
    alone = {"x-api-key": world.key}
    assert (await world.client.post("/v1/messages", json=body, headers=alone)).status_code == 200
    # It is the header of those who ask models: elsewhere it is nobody's.
    assert (await world.client.get("/apps", headers=alone)).status_code == 401


async def test_tools_that_the_caller_runs_are_passed_on_to_their_vendor_only(world: Installation) -> None:
    bash = [{"type": "bash_20250124", "name": "bash"}]
    assert (await post_message(world, tools=bash)).status_code == 200
    assert world.fake.requests[-1].json["tools"] == bash
    refusal = await post_message(world, model=MINI, tools=bash)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "tools[0].type")


async def test_a_message_without_its_limit_is_refused_in_the_words_of_the_wire(world: Installation) -> None:
    body = {"model": ECHO, "messages": HELLO}
    refusal = await world.client.post("/v1/messages", json=body, headers=world.owner)
    assert refusal.status_code == 400
    assert refusal.json()["type"] == "error"
    assert "max_tokens" in refusal.json()["error"]["message"]


async def test_the_built_in_model_stops_at_the_limit(world: Installation) -> None:
    answer = (await post_message(world, model=ECHO, max_tokens=3)).json()
    assert (answer["stop_reason"], answer["usage"]["output_tokens"]) == ("max_tokens", 3)


async def test_thoughts_are_told_to_those_who_ask_for_them(world: Installation) -> None:
    thoughtful = world.add_model("thoughts")
    for stream in (False, True):
        for thinking in ({"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}):
            answer = await post_message(world, model=thoughtful, thinking=thinking, stream=stream)
            kinds = (
                [
                    one["content_block"]["type"]
                    for one in parse_events(answer.text)
                    if one["type"] == "content_block_start"
                ]
                if stream
                else [block["type"] for block in answer.json()["content"]]
            )
            assert kinds == (["thinking", "text"] if thinking["type"] == "enabled" else ["text"]), json.dumps(kinds)


async def test_a_stream_that_is_left_costs_what_its_beginning_says_of_the_prompt(world: Installation) -> None:
    # A prompt of a hundred thousand tokens, nearly all of it from the cache or written to it.
    counts = {"cache_read_input_tokens": 90_000, "cache_creation_input_tokens": 9_000, "input_tokens": 1_000}
    start: dict[str, Any] = {
        "type": "message_start",
        "message": {"type": "message", "usage": {**counts, "output_tokens": 1}},
    }
    words = {"type": "text_delta", "text": "Hello, tree"}
    delta: dict[str, Any] = {"type": "content_block_delta", "index": 0, "delta": words}
    event_bytes = b"".join(
        b"event: %s\ndata: %s\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in (start, delta)
    )
    world.fake.canned_answers["begun"] = CannedAnswer(event_bytes, headers={"content-type": "text/event-stream"})
    gateway = world.application.services.part(Gateway)
    base_model = gateway.catalogue.find_model("anthropic/claude-haiku-4.5")
    assert base_model is not None
    model = replace(base_model, id="anthropic/left-early", litellm="anthropic/said:begun")
    gateway.catalogue.register_models("left early", [model])
    before = await world.get_spent()
    await post_message(world, model=model.id, stream=True)
    (usage,) = [usage for usage in await world.list_usage() if usage.model == model.id]
    assert (usage.prompt_tokens, usage.completion_tokens) == (100_000, 3)
    price = model.price
    assert price.cached is not None
    assert price.cache_write is not None
    cost = 1_000 * price.prompt + 90_000 * price.cached + 9_000 * price.cache_write + 3 * price.completion
    assert await world.get_spent() - before == cost // 1_000_000
