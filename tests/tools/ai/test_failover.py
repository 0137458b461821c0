"""Several who serve one model, and those whose wire LiteLLM translates. LiteLLM takes seconds to load: all is here."""

import json
import time
from typing import Any

import pytest

from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, OTHER_KEY, TEXT, TOOL, Installation, add_translated_model, join_content

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def claude() -> str:
    return "anthropic/claude-haiku-4.5"


@pytest.mark.parametrize("stream", [False, True])
async def test_when_one_provider_of_a_model_fails_the_other_takes_over(world: Installation, *, stream: bool) -> None:
    model_id = f"vendor/shared-{stream}".lower()
    world.add_model("500", id=model_id, server="first")
    world.add_model("works", id=model_id, server="second")
    for _ in range(6):
        answer = await world.chat(model_id, stream=stream)
        assert answer.status_code == 200, answer.text
        assert world.fake.requests[-1].json["model"] == "works"


async def test_a_provider_that_is_busy_rests_while_there_is_another(world: Installation) -> None:
    model = world.add_model("429:9:", id="vendor/rests", server="third")
    world.add_model("awake", id=model, server="fourth")
    before = len(world.fake.requests)
    for _ in range(20):
        assert (await world.chat(model)).status_code == 200
    models = [request.json["model"] for request in list(world.fake.requests)[before:]]
    assert models.count("awake") == 20
    # It is asked once more at most when its rest, of some seconds, is over.
    assert models.count("429:9:") <= 4


async def test_a_provider_rests_for_as_long_as_it_has_said(
    world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = world.add_model("429:30", id="vendor/rests-long", server="busy")
    world.add_model("up", id=model, server="awake")

    async def asked_of_busy() -> int:
        before = len(world.fake.requests)
        for _ in range(20):
            assert (await world.chat(model)).status_code == 200
        return [request.json["model"] for request in list(world.fake.requests)[before:]].count("429:30")

    assert await asked_of_busy() == 1
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 20)
    assert await asked_of_busy() == 0
    monkeypatch.setattr(time, "time", lambda: real() + 40)
    assert await asked_of_busy() == 1


async def test_when_all_fail_the_caller_is_told(world: Installation) -> None:
    model = world.add_model("503", id="vendor/none", server="fifth")
    world.add_model("500:1:", id=model, server="sixth")
    for _ in range(3):
        answer = await world.chat(model)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("behaviour", ["drop-first", "502", "504", "malformed-json"])
async def test_what_may_have_been_paid_is_asked_of_nobody_else(world: Installation, behaviour: str) -> None:
    app_id, works = await world.create_app(), world.add_model("works")
    settings = {"fallbackModels": [works]}
    await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)
    shared_model = world.add_model(behaviour, id=f"vendor/paid-{behaviour}", server="ninth")
    world.add_model(f"{behaviour}:", id=shared_model, server="tenth")
    for model in (shared_model, await add_translated_model(world, behaviour)):
        request_count = len(world.fake.requests)
        answer = await world.chat(model, path=f"/v1/{app_id}")
        assert answer.status_code in (502, 504), answer.text
        assert len(world.fake.requests) == request_count + 1
        assert answer.headers["x-should-retry"] == "false"


async def test_a_translated_model_answers_like_any_other(world: Installation, claude: str) -> None:
    before = await world.get_spent()
    answer = await world.chat(claude, max_tokens=50)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == TEXT
    assert answer.json()["object"] == "chat.completion"
    assert (answer.json()["usage"]["prompt_tokens"], answer.json()["usage"]["completion_tokens"]) == (11, 7)
    request = world.fake.requests[-1]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == OTHER_KEY
    assert request.json["max_tokens"] == 50
    # One dollar and five for a million tokens.
    assert await world.get_spent() - before == 11 * 1000 + 7 * 5000


async def test_a_translated_stream_is_a_stream(world: Installation, claude: str) -> None:
    before = await world.get_spent()
    events = await world.stream_events(claude)
    assert join_content(events) == TEXT
    assert events[-1] == "[DONE]"
    assert not [event for event in events[:-1] if event.get("usage")]
    finish_reasons = [choice["finish_reason"] for event in events[:-1] for choice in event["choices"]]
    assert [reason for reason in finish_reasons if reason] == ["stop"]
    assert await world.get_spent() - before == 11 * 1000 + 7 * 5000
    *_, last, _ = await world.stream_events(claude, stream_options={"include_usage": True})
    assert last["usage"]["total_tokens"] == 18


async def test_a_stream_of_googles_ends_where_it_says_so(world: Installation) -> None:
    events = await world.stream_events(
        await add_translated_model(world, "plain", "gemini"), stream_options={"include_usage": True}
    )
    assert join_content(events) == TEXT
    assert [choice["finish_reason"] for choice in events[-3]["choices"]] == ["stop"]
    assert (events[-2]["usage"]["total_tokens"], events[-1]) == (18, "[DONE]")


async def test_a_stream_of_googles_that_is_cut_off_costs_what_was_written(world: Installation) -> None:
    model = await add_translated_model(world, "stop:5", "gemini")
    await world.stream_events(model)
    (usage,) = [usage for usage in await world.list_usage() if usage.model == model]
    assert 5 <= usage.completion_tokens <= 7


@pytest.mark.parametrize(
    ("last", "ends"),
    [
        ({"promptFeedback": {"blockReason": "SAFETY"}}, True),
        ({"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}]}, True),
        # What a model says is no word of its provider's.
        (
            {
                "candidates": [
                    {"content": {"parts": [{"functionCall": {"name": "f", "args": {"finishReason": "STOP"}}}]}}
                ]
            },
            False,
        ),
        ({"candidates": [{"content": {"parts": [{"text": '"finishReason": "STOP"'}]}}]}, False),
    ],
)
async def test_google_says_in_several_ways_that_an_answer_ends(
    world: Installation, last: dict[str, Any], *, ends: bool
) -> None:
    first = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "index": 0}]}
    body = b"".join(b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in (first, last))
    world.fake.canned_answers[""] = CannedAnswer(body, headers={"content-type": "text/event-stream"})
    events = await world.stream_events(await add_translated_model(world, "said", "gemini"))
    assert (events[-1] == "[DONE]") is ends
    assert ("error" in events[-1]) is not ends


async def test_a_translated_model_calls_tools(world: Installation) -> None:
    model = await add_translated_model(world, "tools:2")
    answer = await world.chat(model, tools=[TOOL])
    assert answer.json()["choices"][0]["message"]["content"] is None
    calls = answer.json()["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["get_weather", "get_weather"]
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"
    events = await world.stream_events(model, tools=[TOOL])
    parts = [
        part for event in events[:-1] for choice in event["choices"] for part in choice["delta"].get("tool_calls") or ()
    ]
    assert {part["index"] for part in parts} == {0, 1}


@pytest.mark.parametrize(
    ("behaviour", "status", "code"),
    [
        ("400", 400, "invalid_request"),
        ("401", 502, "upstream_denied"),
        ("429:6", 429, "rate_limit_exceeded"),
        ("500", 502, "upstream_error"),
        ("529", 502, "upstream_error"),
        ("context", 400, "context_length_exceeded"),
        ("html", 502, "upstream_error"),
        ("drop-first", 502, "upstream_error"),
        ("malformed-json", 502, None),
    ],
)
async def test_what_a_translated_provider_refuses_is_said_in_our_words(
    world: Installation, behaviour: str, status: int, code: str | None
) -> None:
    before = await world.get_spent()
    answer = await world.chat(await add_translated_model(world, behaviour))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"] if code else None) == (status, code)
    for theirs in (OTHER_KEY, world.fake.url.partition("//")[2], "litellm", "nthropic"):
        assert theirs not in answer.text
    if status == 429:
        assert answer.headers["retry-after"] == "6"
    assert await world.get_spent() == before


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
@pytest.mark.parametrize("behaviour", ["drop:4", "error-frame:4", "stop:4"])
async def test_a_translated_stream_that_fails_ends_with_one_error(
    world: Installation, behaviour: str, vendor: str
) -> None:
    events = await world.stream_events(await add_translated_model(world, behaviour, vendor))
    *earlier_events, last = events
    assert last["error"]["type"] == "api_error"
    assert not [event for event in earlier_events if event == "[DONE]" or "error" in event]
    assert "in the middle" not in str(events)
    # The library would say that it has come to its end.
    assert not [choice for event in earlier_events for choice in event["choices"] if choice["finish_reason"]]


async def test_a_translated_stream_without_anything_in_it_is_no_answer(world: Installation) -> None:
    before = await world.get_spent()
    answer = await world.chat(await add_translated_model(world, "stop:0"), stream=True)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_malformed")
    assert await world.get_spent() == before


@pytest.mark.parametrize("stream", [False, True])
async def test_fields_that_nobody_here_knows_reach_a_translated_vendor(
    world: Installation, claude: str, *, stream: bool
) -> None:
    further: dict[str, Any] = {"field_of_tomorrow": {"x": [1]}, "cache_control": {"type": "ephemeral"}}
    # What OpenAI alone understands it would refuse, and what bills another it must not be told.
    theirs: dict[str, Any] = {"store": True, "metadata": {"a": "b"}, "prompt_cache_key": "k", "verbosity": "low"}
    billed_fields: dict[str, Any] = {"fallbacks": [{"model": "claude-opus-4-8"}], "billing_policy": {}}
    answer = await world.chat(claude, max_tokens=9, top_k=5, stream=stream, **further, **theirs, **billed_fields)
    assert answer.status_code == 200, answer.text
    sent_body = world.fake.requests[-1].json
    assert {name: sent_body[name] for name in further} == further
    assert {*sent_body} - {"stream"} == {"model", "messages", "max_tokens", "top_k", *further}


async def test_no_field_takes_the_place_of_another_at_a_translated_vendor(world: Installation, claude: str) -> None:
    system = [{"role": "system", "content": "Be brief."}, *HELLO]
    await world.chat(claude, messages=system, max_tokens=9, stop=["END"], user="u1", system="x", stop_sequences=["y"])
    sent_body = world.fake.requests[-1].json
    assert (sent_body["model"], sent_body["max_tokens"]) == ("claude-haiku-4-5", 9)
    assert sent_body["stop_sequences"] == ["END"]
    assert sent_body["system"] == [{"type": "text", "text": "Be brief."}]


@pytest.mark.parametrize("stream", [False, True])
async def test_fields_of_googles_own_reach_it_and_take_no_others_place(world: Installation, *, stream: bool) -> None:
    if not stream:
        world.fake.canned_answers[""] = CannedAnswer(
            json.dumps({"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}).encode()
        )
    model = await add_translated_model(world, "said" if not stream else "plain", "gemini")
    others: dict[str, Any] = {
        "contents": [{"parts": [{"text": "Other"}]}],
        "systemInstruction": {"parts": []},
        "cachedContent": "c/1",
    }
    await world.chat(model, stream=stream, max_tokens=9, labels={"a": "b"}, **others)
    sent_body = world.fake.requests[-1].json
    assert sent_body["labels"] == {"a": "b"}
    assert sent_body["contents"] == [{"role": "user", "parts": [{"text": "Hello!"}]}]
    assert not {"systemInstruction", "cachedContent"} & set(sent_body)


@pytest.mark.parametrize(
    ("vendor", "url"),
    [
        ("anthropic", "http://{here}/picture.png"),
        ("gemini", "http://{here}/picture.png"),
        ("gemini", "https://169.254.169.254/latest/picture.png"),
        ("gemini", "https://{here}/picture.png"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_no_picture_leads_a_translated_call_to_a_private_address(
    world: Installation, vendor: str, url: str, *, stream: bool
) -> None:
    request_count = len(world.fake.requests)
    picture = {"type": "image_url", "image_url": {"url": url.format(here=world.fake.url.partition("//")[2])}}
    model = await add_translated_model(world, "works", vendor)
    refusal = await world.chat(model, messages=[{"role": "user", "content": [picture]}], stream=stream)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "invalid_request")
    assert len(world.fake.requests) == request_count


async def test_no_field_leads_a_translated_call_elsewhere(world: Installation, claude: str) -> None:
    request_count = len(world.fake.requests)
    elsewhere: Any = {
        "api_base": "http://127.0.0.1:9",
        "base_url": "http://127.0.0.1:9",
        "api_key": "sk-other",
        "custom_llm_provider": "openai",
        "extra_headers": {"x-api-key": "sk-other"},
        "mock_response": "made up",
        "fallbacks": ["gpt-4o"],
    }
    for name, value in elsewhere.items():
        answer = await world.chat(claude, **{name: value})
        assert answer.status_code == 200, (name, answer.text)
        request = world.fake.requests[-1]
        assert (request.path, request.headers["x-api-key"]) == ("/v1/messages", OTHER_KEY)
        assert answer.json()["choices"][0]["message"]["content"] == TEXT
    assert len(world.fake.requests) == request_count + len(elsewhere)


async def test_what_an_answer_used_that_nobody_was_given_is_not_charged(world: Installation) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "no JSON"}}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [call]}}
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000}
    world.fake.canned_answers["uncalled"] = CannedAnswer(
        json.dumps({"id": "1", "choices": [choice], "usage": usage}).encode()
    )
    model = world.add_model("said:uncalled", id="vendor/uncalled", server="seventh")
    world.add_model("no-usage", id=model, server="eighth")
    body = {"model": model, "messages": HELLO, "max_tokens": 9}
    answers = [await world.client.post("/v1/messages", json=body, headers=world.owner) for _ in range(12)]
    statuses = [answer.status_code for answer in answers]
    # Somebody has paid for what was no answer: it is not asked of another.
    assert set(statuses) == {200, 502}
    (charged_usage,) = [charged_usage for charged_usage in await world.list_usage() if charged_usage.model == model]
    assert charged_usage.requests == statuses.count(200)
    assert charged_usage.prompt_tokens < 1000
