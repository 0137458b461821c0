"""Why an answer ended is told truthfully on every wire: cut off, filtered, refused."""

import json
from typing import Any

import pytest

from baobab.runtime.agents.model_answers import parse_model_answer
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The provider's reason, and those of Anthropic's messages and OpenAI's responses.
REASONS = [
    ("stop", "end_turn", None),
    ("length", "max_tokens", "max_output_tokens"),
    ("model_length", "max_tokens", "max_output_tokens"),
    ("insufficient_system_resource", "max_tokens", "max_output_tokens"),
    ("content_filter", "refusal", "content_filter"),
    ("sensitive", "refusal", "content_filter"),
]


def answer_with(world: Installation, name: str, message: dict[str, Any], reason: str) -> str:
    """Have a model answer so, in one piece and in a stream; its id."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": reason}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    world.fake.canned_answers[f"{name} whole"] = CannedAnswer(json.dumps(answer).encode())
    choices = [
        {"index": 0, "delta": {"role": "assistant", **message}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": reason},
    ]
    events = [json.dumps({**answer, "object": "chat.completion.chunk", "choices": [each]}) for each in choices]
    body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
    world.fake.canned_answers[name] = CannedAnswer(body, headers={"content-type": "text/event-stream"})
    return world.add_model(f"calls:{name}")


async def ask(world: Installation, wire: str, model: str, *, stream: bool) -> dict[str, Any]:
    """Returns the end of the answer: the last choice, the message or the response."""
    body: dict[str, Any] = {"model": model, "stream": stream}
    body |= {"input": HELLO} if wire == "responses" else {"messages": HELLO}
    body |= {"max_tokens": 100} if wire == "messages" else {}
    answer = await world.client.post(f"/v1/{wire}", json=body, headers=world.owner)
    assert answer.status_code == 200, answer.text
    if not stream:
        whole: dict[str, Any] = answer.json()
        return whole["choices"][0] if wire == "chat/completions" else whole
    events = parse_events(answer.text)
    ends = {"chat/completions": lambda: events[-2]["choices"][0], "messages": lambda: events[-2]["delta"]}
    end: dict[str, Any] = ends[wire]() if wire in ends else events[-1]["response"]
    return end


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("reason", "of_message", "of_response"), REASONS)
async def test_each_wire_says_why_the_answer_ended(
    world: Installation, reason: str, of_message: str, of_response: str | None, *, stream: bool
) -> None:
    model = answer_with(world, f"{reason} {stream}", {"content": "So far"}, reason)
    assert (await ask(world, "chat/completions", model, stream=stream))["finish_reason"] == reason
    assert (await ask(world, "messages", model, stream=stream))["stop_reason"] == of_message
    response = await ask(world, "responses", model, stream=stream)
    details = response["incomplete_details"]
    assert (response["status"], details and details["reason"]) == (
        "incomplete" if of_response else "completed",
        of_response,
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_a_refusal_on_each_wire(world: Installation, *, stream: bool) -> None:
    model = answer_with(world, f"refusal {stream}", {"refusal": "I will not."}, "stop")
    message = await ask(world, "messages", model, stream=stream)
    assert message["stop_reason"] == "refusal"
    response = await ask(world, "responses", model, stream=stream)
    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "I will not."}]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_that_is_told_as_a_reason_is_an_error(world: Installation, *, stream: bool) -> None:
    model = answer_with(world, f"fails {stream}", {"content": "So far"}, "network_error")
    for path, body in (("messages", {"messages": HELLO, "max_tokens": 9}), ("responses", {"input": HELLO})):
        answer = await world.client.post(
            f"/v1/{path}", json={"model": model, "stream": stream, **body}, headers=world.owner
        )
        if stream:
            assert parse_events(answer.text)[-1]["type"] == "error"
        else:
            assert answer.status_code == 502


@pytest.mark.parametrize(
    ("arguments", "reason", "is_complete"),
    [
        ('{"key": "a"}', "length", True),
        ('{"key": "a', "length", False),
        ("", "length", False),
        ("{}", "stop", True),
        # Some providers do not say that they have cut it.
        ('{"key": "a', "tool_calls", False),
        # This is wrong, but it has an end.
        ("{'key': 1}", "tool_calls", True),
    ],
)
async def test_an_agent_is_told_which_calls_arrived_whole(arguments: str, reason: str, *, is_complete: bool) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "kv_get", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
    answer = parse_model_answer({"choices": [{"message": message, "finish_reason": reason}]})
    assert (answer.complete_calls, answer.finish_reason, answer.refusal) == ((is_complete,), reason, None)
