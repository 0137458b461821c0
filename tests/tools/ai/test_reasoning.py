"""A model's reasoning comes back to the provider that gave it, within a loop of tool calls, and to no other one."""

import json
from typing import Any

import pytest

from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import Installation, parse_events
from tests.tools.ai.test_provider_habits import QUESTION, SCHEMA, call_by_agent

pytestmark = pytest.mark.asyncio(loop_scope="module")

ARGUMENTS = '{"key":"a"}'
CALL = {"id": "c1", "type": "function", "function": {"name": "kv_get", "arguments": ARGUMENTS}}
DETAILS = [
    {"type": "reasoning.text", "text": "Let me see.", "index": 0, "format": "anthropic", "signature": "sig"},
    {"type": "reasoning.encrypted", "data": "opaque", "index": 1},
]
GOOGLE = {"google": {"thought_signature": "signed"}}
# What providers add to the message with the call; the last is in the call itself.
REASONING: dict[str, dict[str, Any]] = {
    "DeepSeek's": {"reasoning_content": "Let me see."},
    "Groq's": {"reasoning": "Let me see."},
    "OpenRouter's": {"reasoning": "Let me see.", "reasoning_details": DETAILS},
    "Gemini's": {"tool_calls": [{**CALL, "extra_content": GOOGLE}]},
}
# How they stream it: pieces that the assembled message is made of.
DELTAS: dict[str, list[dict[str, Any]]] = {
    "DeepSeek's": [{"reasoning_content": "Let me"}, {"reasoning_content": " see."}],
    "Groq's": [{"reasoning": "Let me"}, {"reasoning": " see."}],
    "OpenRouter's": [
        {"reasoning": "Let me", "reasoning_details": [{**DETAILS[0], "text": "Let me", "signature": None}]},
        {"reasoning": " see.", "reasoning_details": [{"type": "reasoning.text", "text": " see.", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "index": 0}]},
        {"reasoning_details": [DETAILS[1]]},
    ],
    "Gemini's": [],
}
KINDS = list(REASONING)


def name_of(kind: str) -> str:
    return kind.removesuffix("'s").lower()


def think(world: Installation, kind: str, server: str = "lab") -> str:
    """Have a model think so and call a tool; its id."""
    name = name_of(kind)
    message = {"role": "assistant", "content": None, "tool_calls": [CALL], **REASONING[kind]}
    head: dict[str, Any] = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    world.fake.canned_answers[f"{name} whole"] = CannedAnswer(json.dumps({**head, "choices": [choice]}).encode())
    calls = [{"index": 0, **call} for call in message["tool_calls"]]
    deltas: list[dict[str, Any]] = [{"role": "assistant"}, *DELTAS[kind], {"tool_calls": calls}]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    texts = [json.dumps({**head, "object": "chat.completion.chunk", "choices": [one]}) for one in choices]
    body = "".join(f"data: {text}\n\n" for text in [*texts, "[DONE]"]).encode()
    world.fake.canned_answers[name] = CannedAnswer(body, headers={"content-type": "text/event-stream"})
    return world.add_model(f"calls:{name}", server=server)


def find_sent(world: Installation) -> dict[str, Any]:
    """Returns the assistant's message of the last request."""
    (message,) = [each for each in world.fake.requests[-1].json["messages"] if each["role"] == "assistant"]
    assert "reasoning_origin" not in message
    return message  # type: ignore[no-any-return]


def check_sent(world: Installation, kind: str) -> None:
    message = find_sent(world)
    for name, value in REASONING[kind].items():
        assert message[name] == value


def check_nothing_sent(world: Installation) -> None:
    message = find_sent(world)
    assert set(message) <= {"role", "content", "tool_calls"}
    assert set(message["tool_calls"][0]) <= {"id", "type", "function"}


async def ask_messages(world: Installation, *, stream: bool, **body: Any) -> list[dict[str, Any]]:
    """Returns the blocks of a message, as a client that puts them together has them."""
    tools = [{"name": "kv_get", "input_schema": SCHEMA}]
    request = {"max_tokens": 2000, "tools": tools, "stream": stream, **body}
    answer = await world.client.post("/v1/messages", json=request, headers=world.owner)
    assert answer.status_code == 200, answer.text
    if not stream:
        content: list[dict[str, Any]] = answer.json()["content"]
        return content
    blocks: list[dict[str, Any]] = []
    for event in parse_events(answer.text):
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            field = {"input_json_delta": "partial_json"}.get(kind := event["delta"]["type"], kind.split("_")[0])
            blocks[-1][field] = blocks[-1].get(field, "") + event["delta"][field]
    for block in blocks:
        if "partial_json" in block:
            block["input"] = json.loads(block.pop("partial_json"))
    return blocks


async def go_on_with_messages(world: Installation, model: str, blocks: list[dict[str, Any]], **body: Any) -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "1"}
    messages = [*QUESTION, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    await ask_messages(world, stream=False, model=model, messages=messages, **body)


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_messages_give_it_back(world: Installation, kind: str, *, stream: bool, asked: bool) -> None:
    model, thinking = think(world, kind), THINKING if asked else {}
    blocks = await ask_messages(world, stream=stream, model=model, messages=QUESTION, **thinking)
    assert ("thinking" in [block["type"] for block in blocks]) is (asked and kind != "Gemini's")
    await go_on_with_messages(world, model, blocks, **thinking)
    check_sent(world, kind)
    # Another provider's model does not get it, and Anthropic does not get what it has not signed.
    other = world.add_model(f"calls:{name_of(kind)}", server="elsewhere")
    await go_on_with_messages(world, other, blocks)
    check_nothing_sent(world)
    await go_on_with_messages(world, world.add_model("plain", server="anthropic"), blocks)
    content = world.fake.requests[-1].json["messages"][1]["content"]
    assert [block["type"] for block in content] == ["tool_use"]


@pytest.mark.parametrize("way", ["whole", "streamed", "stored"])
@pytest.mark.parametrize("kind", KINDS)
async def test_responses_give_it_back(world: Installation, kind: str, way: str) -> None:
    model = think(world, kind)
    tools = [{"type": "function", "name": "kv_get", "parameters": SCHEMA}]
    request = {"model": model, "input": QUESTION, "tools": tools, "stream": way == "streamed"}
    answer = await world.client.post("/v1/responses", json=request, headers=world.owner)
    response = parse_events(answer.text)[-1]["response"] if way == "streamed" else answer.json()
    result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    # Some clients send back only what is encrypted.
    items = [{name: value for name, value in item.items() if name != "content"} for item in response["output"]]
    following = {"model": model, "input": [*QUESTION, *items, result]}
    if way == "stored":
        following = {"model": model, "input": [result], "previous_response_id": response["id"]}
    answer = await world.client.post("/v1/responses", json=following, headers=world.owner)
    assert answer.status_code == 200, answer.text
    check_sent(world, kind)
    following["model"] = world.add_model("plain", server="elsewhere")
    await world.client.post("/v1/responses", json=following, headers=world.owner)
    check_nothing_sent(world)
    following["model"] = world.add_model("plain", server="openai")
    await world.client.post("/v1/responses", json=following, headers=world.owner)
    kinds = [item.get("type") for item in world.fake.requests[-1].json["input"]]
    assert kinds == [None, "function_call", "function_call_output"]


@pytest.mark.parametrize("kind", KINDS)
async def test_agents_give_it_back(world: Installation, kind: str) -> None:
    await call_by_agent(world, think(world, kind))
    check_sent(world, kind)


async def test_a_provider_that_refuses_it_is_asked_without_it(world: Installation) -> None:
    refusal = {"error": {"message": "'messages.1' : property 'reasoning_content' is unsupported", "code": 400}}
    world.fake.canned_answers["strict"] = CannedAnswer(json.dumps(refusal).encode(), status=400)
    message = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Let me see."}
    messages = [*QUESTION, message, {"role": "tool", "tool_call_id": "c1", "content": "1"}]
    count = len(world.fake.requests)
    answer = await world.chat(world.add_model("said:strict"), messages=messages)
    assert answer.status_code == 400
    first, second = list(world.fake.requests)[count:]
    assert first.json["messages"][1] == message
    assert "reasoning_content" not in second.json["messages"][1]


async def test_a_provider_that_demands_it_gets_an_empty_one_for_another_models_calls(world: Installation) -> None:
    words = "The `reasoning_content` in the thinking mode must be passed back to the API."
    body = json.dumps({"error": {"message": words, "code": "invalid_request_error"}}).encode()
    world.fake.canned_answers["demanding"] = CannedAnswer(body, status=400)
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    messages = [*QUESTION, message, {"role": "tool", "tool_call_id": "c1", "content": "1"}]
    count = len(world.fake.requests)
    await world.chat(world.add_model("said:demanding"), messages=messages)
    assert [request.json["messages"][1] for request in list(world.fake.requests)[count:]] == [
        message,
        {**message, "reasoning_content": ""},
    ]


async def test_a_fallback_at_another_provider_does_not_get_it(world: Installation) -> None:
    app_id = await world.create_app()
    busy = world.add_model("503")
    settings = {"fallbackModels": [world.add_model("plain", server="elsewhere")]}
    await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)
    message = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Let me see."}
    messages = [*QUESTION, message, {"role": "tool", "tool_call_id": "c1", "content": "1"}]
    answer = await world.chat(busy, path=f"/v1/{app_id}", messages=messages)
    assert answer.status_code == 200, answer.text
    check_nothing_sent(world)


# As Codex writes it: the call, what the model said, and then the result.
@pytest.mark.parametrize("model", ["baobab/echo", "lab"])
async def test_results_come_directly_behind_their_calls(world: Installation, model: str) -> None:
    model = world.add_model("ordered") if model == "lab" else model
    tools = [{"type": "function", "name": "kv_get", "parameters": SCHEMA}]
    items = [
        *QUESTION,
        {"type": "function_call", "call_id": "c1", "name": "kv_get", "arguments": ARGUMENTS},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "doing it"}]},
        {"type": "message", "role": "user", "content": "Go on."},
        {"type": "function_call", "call_id": "c2", "name": "kv_get", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
    ]
    request = {"model": model, "tools": tools, "input": items}
    answer = await world.client.post("/v1/responses", json=request, headers=world.owner)
    assert answer.status_code == 200, answer.text
    if model == "baobab/echo":
        return
    sent_messages = world.fake.requests[-1].json["messages"]
    assert [message["role"] for message in sent_messages] == ["user", "assistant", "tool", "user", "assistant", "tool"]
    assert (sent_messages[1]["content"], sent_messages[2]["content"], sent_messages[5]["content"]) == (
        "doing it",
        "one",
        "two",
    )


async def test_results_of_a_chat_are_moved_to_their_calls(world: Installation) -> None:
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "user", "content": "Hurry."},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
    ]
    await world.chat(world.add_model("ordered"), messages=messages)
    sent_messages = world.fake.requests[-1].json["messages"]
    assert sent_messages == [messages[0], messages[1], messages[3], messages[2]]
