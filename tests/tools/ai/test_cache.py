"""Kept answers: the very same request is answered again at no cost, to the same payer, app and user only."""

import json
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from baobab.runtime.gateway.completion_events import CompletionAssembler
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.tools.ai.tables import response_cache as rows
from tests.conftest import Baobab
from tests.people import create_key, create_person
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, MINI, TEXT, TOOL, Installation, join_content, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR = {"ttl": 3600}
SMALL = "openai/text-embedding-3-small"
FREE = "0.000000000"


def build_question(text: str) -> dict[str, Any]:
    """A conversation that no other test has."""
    return {"messages": [{"role": "user", "content": text}], "cache": HOUR}


async def count_rows(world: Baobab) -> int:
    async with world.application.services.database.reading() as connection:
        return int(await connection.scalar(select(func.count()).select_from(rows)) or 0)


def cache_state(answer: httpx.Response) -> str | None:
    assert answer.status_code == 200, answer.text
    state: str | None = answer.headers.get("x-baobab-cache")
    return state


async def test_the_same_request_is_answered_again_at_no_cost_and_nobody_is_asked(world: Installation) -> None:
    question = build_question("the same")
    first = await world.chat(**question)
    requests, spent_nanos = len(world.fake.requests), await world.get_spent()
    again = await world.chat(**question)
    assert (cache_state(first), cache_state(again)) == ("miss", "hit")
    assert again.json() == first.json()
    assert (again.headers["x-baobab-model"], again.headers["x-baobab-cost-usd"]) == (MINI, FREE)
    assert len(world.fake.requests) == requests
    assert await world.get_spent() == spent_nanos
    assert "cache" not in world.fake.requests[-1].json


async def test_without_the_field_nothing_is_kept_and_nothing_looked_for(world: Installation) -> None:
    question = build_question("not kept")
    there = await count_rows(world)
    without = {"messages": question["messages"]}
    assert [cache_state(await world.chat(**without)) for _ in range(2)] == [None, None]
    assert await count_rows(world) == there
    assert cache_state(await world.chat(**question)) == "miss"
    requests = len(world.fake.requests)
    assert cache_state(await world.chat(**without)) is None
    assert len(world.fake.requests) == requests + 1


async def test_neither_the_order_of_fields_nor_how_it_is_sent_makes_another_request(world: Installation) -> None:
    arguments = {"temperature": 0.5, "seed": 7, **build_question("order")}
    assert cache_state(await world.chat(**arguments)) == "miss"
    in_reverse = dict(reversed(arguments.items()))
    requests = len(world.fake.requests)
    assert cache_state(await world.chat(**in_reverse, stream=False)) == "hit"
    assert cache_state(await world.chat("gpt-4o-mini", **{**in_reverse, "cache": {"ttl": 60}})) == "hit"
    assert cache_state(await world.chat(**in_reverse, stream=True, stream_options={"include_usage": True})) == "hit"
    assert len(world.fake.requests) == requests


@pytest.mark.parametrize(
    "other",
    [
        {"messages": HELLO},
        {"model": "openai/gpt-4o"},
        {"temperature": 0.1},
        {"max_tokens": 5},
        {"n": 2},
        {"user": "somebody"},
        {"future_field": None},
    ],
)
async def test_whatever_else_differs_is_another_request(world: Installation, other: dict[str, Any]) -> None:
    arguments = {"model": MINI, **build_question(f"differs {other}")}
    assert cache_state(await world.chat(**arguments)) == "miss"
    assert cache_state(await world.chat(**{**arguments, **other})) != "hit"
    assert cache_state(await world.chat(**arguments)) == "hit"


@pytest.mark.parametrize("behaviour", ["works", "tools:2", "comments", "no-usage", "long:300"])
@pytest.mark.parametrize("first", [False, True])
async def test_whole_and_streamed_answers_stand_for_each_other(
    world: Installation, behaviour: str, *, first: bool
) -> None:
    arguments = {"tools": [TOOL], **build_question(f"{behaviour} {first}")}
    model = world.add_model(behaviour)
    plain = {name: value for name, value in arguments.items() if name != "cache"}
    whole = (await world.chat(model, **plain)).json()
    streamed_events = parse_events((await world.chat(model, stream=True, **plain)).text)
    assert cache_state(await world.chat(model, stream=first, **arguments)) == "miss"
    requests = len(world.fake.requests)
    again = await world.chat(model, **arguments)
    assert cache_state(again) == "hit"
    assert again.json()["choices"][0]["message"] == whole["choices"][0]["message"]
    assert again.json()["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert (again.json()["id"], again.json()["object"]) == (whole["id"], "chat.completion")
    if "usage" in whole:
        for count_ in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert again.json()["usage"][count_] == whole["usage"][count_]
    events = await world.chat(model, stream=True, **arguments)
    assert (cache_state(events), events.headers["x-baobab-cost-usd"]) == ("hit", FREE)
    assert join_content(parse_events(events.text)) == join_content(streamed_events)
    assert parse_events(events.text)[-1] == "[DONE]"
    assert not [event for event in parse_events(events.text)[:-1] if event.get("usage")]
    assert len(world.fake.requests) == requests


async def test_a_client_that_joins_events_gets_the_same_calls_of_tools_from_what_is_kept(world: Installation) -> None:
    strict: Any = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    arguments: Any = {
        "tools": [strict],
        "messages": build_question("joined")["messages"],
        "model": world.add_model("tools:2"),
    }
    async with world.build_client() as client:
        answers = []
        for _ in range(2):
            async with client.chat.completions.stream(**arguments, extra_body={"cache": HOUR}) as stream:
                answers.append(await stream.get_final_completion())
    first, again = (answer.choices[0].message.tool_calls for answer in answers)
    assert first
    assert again
    assert [(c.id, c.function.name, c.function.arguments) for c in first] == [
        (c.id, c.function.name, c.function.arguments) for c in again
    ]


async def test_a_kept_stream_tells_what_was_used_to_who_asks(world: Installation) -> None:
    question = build_question("usage")
    assert cache_state(await world.chat(stream=True, **question)) == "miss"
    events = parse_events((await world.chat(stream=True, stream_options={"include_usage": True}, **question)).text)
    assert (events[-2]["choices"], events[-2]["usage"]["total_tokens"]) == ([], 18)


async def test_embeddings_are_kept_too(world: Installation) -> None:
    question = {"input": ["one", "two"], "model": SMALL, "cache": {}}
    first, again, other = [
        await world.client.post("/v1/embeddings", json=body, headers=world.owner)
        for body in (question, question, {**question, "dimensions": 3})
    ]
    assert [cache_state(answer) for answer in (first, again, other)] == ["miss", "hit", "miss"]
    assert again.json() == first.json()
    assert again.headers["x-baobab-cost-usd"] == FREE


async def test_what_is_kept_for_one_is_not_for_another(world: Installation) -> None:
    question = build_question("whose")
    one, other = await world.create_app(), await world.create_app()
    stranger = await create_person(world, "stranger")
    callers: list[tuple[str, dict[str, str]]] = [
        ("/v1", world.owner),
        ("/v1", stranger.headers),
        (f"/v1/{one}", world.owner),
        (f"/v1/{other}", world.owner),
        (f"/v1/{one}", await world.user_headers(one, "anna")),
        (f"/v1/{one}", await world.user_headers(one, "ben")),
        (f"/v1/{other}", await world.user_headers(other, "anna")),
    ]
    for path, by in callers:
        assert cache_state(await world.chat(path=path, by=by, **question)) == "miss"
    for path, by in callers:
        assert cache_state(await world.chat(path=path, by=by, **question)) == "hit"
    # The same payer, in the same place.
    assert cache_state(await world.chat(by=await create_key(world, scopes=["ai:gateway"]), **question)) == "hit"
    assert (
        cache_state(
            await world.chat(
                path=f"/v1/{one}", by=await create_key(world, key_scope="app", target_app_id=one), **question
            )
        )
        == "hit"
    )


async def test_a_kept_answer_is_there_when_nothing_is_left_to_spend(world: Installation) -> None:
    poor = await create_person(world, "poor")
    question = build_question("poor")
    assert cache_state(await world.chat(by=poor.headers, **question)) == "miss"
    await world.credits.set_terms(poor.organisation_id, allowance=0)
    assert (await world.chat(by=poor.headers, **build_question("poorer"))).status_code == 402
    again = await world.chat(by=poor.headers, **question)
    assert (cache_state(again), again.headers["x-baobab-cost-usd"]) == ("hit", FREE)


@pytest.mark.parametrize("behaviour", ["500", "400", "429:1", "context", "drop:3", "error-frame:3", "drop"])
async def test_what_failed_is_not_kept(world: Installation, behaviour: str) -> None:
    model, question = world.add_model(behaviour), build_question(f"failing {behaviour}")
    there = await count_rows(world)
    for stream in (False, True):
        answer = await world.chat(model, stream=stream, **question)
        assert answer.headers.get("x-baobab-cache") != "hit"
        if stream or answer.status_code != 200:
            assert await count_rows(world) == there
        else:
            # Whole it does not fail: then it is forgotten again, to see what its stream does.
            question = build_question(f"failing {behaviour} in a stream")
            there = await count_rows(world)


async def test_a_stream_that_is_left_is_kept_whole_or_not_at_all(world: Installation) -> None:
    # It is read on for what was used, and may come to its end so.
    slow, question = world.add_model("slow-tokens:0.05"), build_question("left")
    body = {"model": slow, "stream": True, **question}
    url = f"{world.address}/v1/chat/completions"
    http = httpx.AsyncClient(trust_env=False)
    async with http, http.stream("POST", url, json=body, headers=world.owner) as answer:
        assert answer.headers["x-baobab-cache"] == "miss"
        await anext(answer.aiter_lines())
    await world.get_settled_balance()
    again = await world.chat(slow, **question)
    assert cache_state(again) in ("hit", "miss")
    assert again.json()["choices"][0]["message"]["content"] == TEXT


async def test_the_answer_of_a_model_that_stood_in_is_not_kept(world: Installation) -> None:
    app_id, failing_model, works = await world.create_app(), world.add_model("503"), world.add_model("stands-in")
    settings = {"fallbackModels": [works]}
    await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)
    for _ in range(2):
        answer = await world.chat(failing_model, path=f"/v1/{app_id}", **build_question("stands in"))
        assert (cache_state(answer), answer.headers["x-baobab-model"]) == ("miss", works)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_above_a_megabyte_is_passed_on_and_not_kept(world: Installation, *, stream: bool) -> None:
    huge = world.add_model("huge:1100000")
    for _ in range(2):
        answer = await world.chat(huge, stream=stream, **build_question(f"huge {stream}"))
        assert cache_state(answer) == "miss"
        assert len(answer.content) > 1_100_000


@pytest.mark.parametrize("cache", [{"ttl": 0}, {"ttl": 604_801}, {"ttl": "60"}, {"ttl": True}, {"days": 1}, 60, True])
async def test_what_is_no_time_is_refused(world: Installation, cache: Any) -> None:
    for path, body in (("chat/completions", {"messages": HELLO}), ("embeddings", {"input": "one"})):
        answer = await world.client.post(f"/v1/{path}", json={**body, "cache": cache}, headers=world.owner)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        assert "cache" in answer.json()["error"]["message"]


@pytest.mark.parametrize("delta", ["text", [1], {"tool_calls": ["call"]}, {"tool_calls": "call"}, {"tool_calls": 1}])
async def test_a_stream_that_makes_up_no_answer_is_passed_on_and_not_kept(world: Installation, delta: Any) -> None:
    event = {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}
    body = b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"
    world.fake.canned_answers["odd"] = CannedAnswer(body, headers={"content-type": "text/event-stream"})
    odd = world.add_model("said:odd")
    for _ in range(2):
        answer = await world.chat(odd, stream=True, **build_question(f"odd {delta}"))
        assert (cache_state(answer), parse_events(answer.text)) == ("miss", [event, "[DONE]"])


async def test_an_event_may_have_any_number_of_items() -> None:
    # Each was once looked for among all before it: this many would take minutes, while everybody waits.
    many, assembler = 100_000, CompletionAssembler(2**20)
    for text in ("{", "}"):
        calls = [{"index": index, "function": {"arguments": text}} for index in range(many)]
        delta = {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}
        assembler.add(b"data: " + json.dumps(delta).encode() + b"\n\n")
    whole = assembler.build_completion(UsageMeter())
    assert whole is not None
    assert whole["choices"][0]["message"]["tool_calls"] == [{"function": {"arguments": "{}"}}] * many
