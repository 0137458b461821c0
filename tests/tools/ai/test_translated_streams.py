"""Streams of providers whose wire LiteLLM translates."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, TOOL, Installation, add_translated_model, join_content, parse_events
from tests.tools.ai.test_provider_habits import run_calling_agent

pytestmark = pytest.mark.asyncio(loop_scope="module")


REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/messages": {"max_tokens": 100, "messages": HELLO},
    "/v1/responses": {"input": HELLO},
}
"""What is asked on each wire."""


def set_stream(world: Installation, name: str, events: Sequence[dict[str, Any]]) -> None:
    """Have the model `said:NAME` stream these events."""
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events)
    world.fake.canned_answers[name] = CannedAnswer(body, headers={"content-type": "text/event-stream"})


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
async def test_an_event_is_taken_apart_once(world: Installation, vendor: str) -> None:
    model = await add_translated_model(world, "long", vendor)
    await world.stream_events(model)
    short, long = [
        await _function_calls(world, await add_translated_model(world, f"long:{many}", vendor)) for many in (40, 240)
    ]
    # The provider, the server and the client together. Through LiteLLM's own stream it is 400 and more.
    assert (long - short) / 200 < 250


async def _function_calls(world: Installation, model: str) -> int:
    """How many functions of Python run while a stream is asked for and read."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await world.stream_events(model)
    finally:
        sys.setprofile(None)
    return calls


async def test_a_stream_that_breaks_off_costs_what_its_beginning_says_of_the_prompt(world: Installation) -> None:
    counts = {"cache_read_input_tokens": 90_000, "cache_creation_input_tokens": 9_000, "input_tokens": 1_000}
    message = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": []}
    start = {"type": "message_start", "message": {**message, "usage": {**counts, "output_tokens": 1}}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello, tree"}}
    set_stream(world, "begins", [start, delta])
    model = await add_translated_model(world, "said:begins")
    events = await world.stream_events(model)
    assert (join_content(events[:-1]), events[-1]["error"]["code"]) == ("Hello, tree", "upstream_malformed")
    (usage,) = [usage for usage in await world.list_usage() if usage.model == model]
    assert (usage.prompt_tokens, usage.completion_tokens) == (100_000, 3)


async def test_several_answers_of_googles_are_told_apart(world: Installation) -> None:
    def candidates(*texts: str, **further: str) -> list[dict[str, Any]]:
        return [
            {"content": {"role": "model", "parts": [{"text": text}]}, "index": index, **further}
            for index, text in enumerate(texts)
        ]

    first_part, last_part = candidates("a", "b"), candidates("c", "d", finishReason="STOP")
    set_stream(world, "both", [{"candidates": first_part}, {"candidates": last_part}])
    events = await world.stream_events(await add_translated_model(world, "said:both", "gemini"), n=2)
    assert world.fake.requests[-1].json["generationConfig"]["candidate_count"] == 2
    choices = [choice for event in events[:-1] for choice in event["choices"]]
    texts = ["".join(one["delta"].get("content", "") for one in choices if one["index"] == index) for index in (0, 1)]
    assert texts == ["ac", "bd"]
    assert [(one["index"], one["finish_reason"]) for one in choices if one["finish_reason"]] == [
        (0, "stop"),
        (1, "stop"),
    ]


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
async def test_what_was_used_comes_behind_the_answer_and_without_it(world: Installation, vendor: str) -> None:
    model = await add_translated_model(world, "plain", vendor)
    events = await world.stream_events(model, stream_options={"include_usage": True})
    assert len({event["id"] for event in events[:-1]}) == 1
    assert (events[0]["choices"][0]["delta"]["role"], events[-3]["choices"][0]["finish_reason"]) == (
        "assistant",
        "stop",
    )
    assert (events[-2]["choices"], events[-2]["usage"]["total_tokens"], events[-1]) == ([], 18, "[DONE]")


async def test_thoughts_with_their_signature_and_calls_come_in_a_stream(world: Installation) -> None:
    message: dict[str, Any] = {"id": "1", "type": "message", "role": "assistant", "model": "m"}
    message |= {"content": [], "stop_reason": None}
    thinking, text = {"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
    deltas: list[tuple[dict[str, Any], list[dict[str, str]]]] = [
        (thinking, [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "abc"}]),
        (text, [{"type": "text_delta", "text": "Let me"}, {"type": "text_delta", "text": " look."}]),
        (call, [{"type": "input_json_delta", "partial_json": part} for part in ("", '{"city":', '"Paris"}')]),
    ]
    set_stream(
        world,
        "thinks",
        [
            {"type": "message_start", "message": {**message, "usage": {"input_tokens": 5, "output_tokens": 1}}},
            *(
                event
                for index, (block, parts) in enumerate(deltas)
                for event in (
                    {"type": "content_block_start", "index": index, "content_block": block},
                    *({"type": "content_block_delta", "index": index, "delta": part} for part in parts),
                    {"type": "content_block_stop", "index": index},
                )
            ),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ],
    )
    events = await world.stream_events(await add_translated_model(world, "said:thinks"), tools=[TOOL])
    received_deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in received_deltas) == "Hm."
    blocks = [block for delta in received_deltas for block in delta.get("thinking_blocks", ())]
    assert [block.get("signature") for block in blocks] == [None, "abc"]
    assert join_content(events) == "Let me look."
    calls = [call for delta in received_deltas for call in delta.get("tool_calls", ())]
    assert {call["index"] for call in calls} == {0}
    assert (calls[0]["id"], calls[0]["type"], calls[0]["function"]["name"]) == ("toolu_1", "function", "get_weather")
    assert "".join(call["function"]["arguments"] for call in calls) == '{"city":"Paris"}'
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_thoughts_that_claude_has_signed_come_back_to_it(world: Installation) -> None:
    block = {"type": "thinking", "thinking": "Let me see.", "signature": "sig"}
    hidden_block = {"type": "redacted_thinking", "data": "opaque"}
    call = {"type": "tool_use", "id": "c1", "name": "kv_get", "input": {"key": "a"}}
    message: dict[str, Any] = {"id": "1", "type": "message", "role": "assistant", "model": "m"}
    message |= {"content": [], "stop_reason": None}
    deltas: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "Let me"},
                {"type": "thinking_delta", "thinking": " see."},
                {"type": "signature_delta", "signature": "sig"},
            ],
        ),
        (hidden_block, []),
        ({**call, "input": {}}, [{"type": "input_json_delta", "partial_json": '{"key": "a"}'}]),
    ]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 5, "output_tokens": 1}}}
    ]
    for index, (start, parts) in enumerate(deltas):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": part} for part in parts]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    world.fake.canned_answers["claude"] = CannedAnswer(body, headers={"content-type": "text/event-stream"})
    await run_calling_agent(world, await add_translated_model(world, "calls:claude"))
    (sent_message,) = [each for each in world.fake.requests[-1].json["messages"] if each["role"] == "assistant"]
    assert sent_message["content"][:2] == [block, hidden_block]
    assert [each["type"] for each in sent_message["content"]] == ["thinking", "redacted_thinking", "tool_use"]


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
@pytest.mark.parametrize("path", REQUESTS)
async def test_a_vendor_that_fails_in_the_middle_ends_the_stream_with_the_error_of_its_wire(
    world: Installation, vendor: str, path: str
) -> None:
    model = await add_translated_model(world, "error-frame:5", vendor)
    request = {**REQUESTS[path], "model": model, "stream": True}
    answer = await world.client.post(path, json=request, headers=world.owner)
    assert answer.status_code == 200, answer.text
    *earlier_events, last = parse_events(answer.text)
    assert earlier_events
    assert not [event for event in earlier_events if event == "[DONE]" or event.get("error")]
    assert last["error"]["type"] == "api_error"
    assert (last.get("type") == "error") is (path != "/v1/chat/completions")
    assert "in the middle" not in answer.text


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
@pytest.mark.parametrize("behaviour", ["shapeless", "malformed-json"])
async def test_an_answer_that_is_none_is_the_providers_fault(world: Installation, vendor: str, behaviour: str) -> None:
    answer = await world.chat(await add_translated_model(world, behaviour, vendor))
    assert answer.status_code == 502, answer.text
    assert answer.json()["error"]["code"] in ("upstream_malformed", "upstream_error")
    assert (await world.chat(await add_translated_model(world, "plain", vendor))).status_code == 200


async def test_the_library_that_translates_writes_nothing_into_the_log(
    world: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        await world.stream_events("gpt-5-pro")
    assert "LiteLLM" not in capfd.readouterr().err
