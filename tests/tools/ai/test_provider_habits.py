"""However a provider streams its tool calls, each of them arrives once and whole: on every wire and in agents."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import anthropic
import pytest

from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import TIMEOUT_SECONDS, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION: list[Any] = [{"role": "user", "content": "What is kept under a?"}]
SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}}
A, B = '{"key": "a"}', '{"key": "b"}'
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
Delta = dict[str, Any]
Calls = list[tuple[str, str]]


def call(index: int | None = None, **fields: Any) -> Delta:
    """A delta with one piece of a call; `name` and `arguments` belong to its function."""
    return {"tool_calls": [piece(index, **fields)]}


def piece(index: int | None = None, **fields: Any) -> dict[str, Any]:
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return {**({} if index is None else {"index": index}), **fields, **({"function": function} if function else {})}


def in_parts(index: int | None, arguments: str, **repeated: Any) -> list[Delta]:
    return [call(index, arguments=part, **repeated) for part in (arguments[:4], arguments[4:9], arguments[9:])]


# Each provider's deltas, and the calls that its model made.
STREAMS: dict[str, tuple[list[Delta], Calls]] = {
    "OpenAI's own": (
        [
            call(0, id="c1", type="function", name="kv_get", arguments=""),
            *in_parts(0, A),
            call(1, id="c2", type="function", name="kv_get", arguments=""),
            *in_parts(1, B),
        ],
        [("kv_get", A), ("kv_get", B)],
    ),
    "empty ids and names later": (
        [call(0, id="c1", name="kv_get", arguments=""), *in_parts(0, A, id="", name="")],
        [("kv_get", A)],
    ),
    "null ids, names and arguments later": (
        [
            call(0, id="c1", type="function", name="kv_get", arguments=""),
            *in_parts(0, A, id=None, type=None, name=None),
            call(0, id=None, name=None, arguments=None),
        ],
        [("kv_get", A)],
    ),
    "everything repeated": (
        [
            call(0, id="c1", type="function", name="kv_get", arguments=""),
            *in_parts(0, A, id="c1", type="function", name="kv_get"),
            call(0, id="c1", type="function", name="kv_get", arguments=""),
        ],
        [("kv_get", A)],
    ),
    "a late name": (
        [call(0, id="c1", name="", arguments=""), call(0, name="kv_get", arguments=""), *in_parts(0, A)],
        [("kv_get", A)],
    ),
    "a name in parts": (
        [call(0, id="c1", name="kv_", arguments=""), call(0, name="get", arguments=""), *in_parts(0, A)],
        [("kv_get", A)],
    ),
    "a late id": (
        [call(0, name="kv_get", arguments=""), call(0, id="c1", arguments=""), *in_parts(0, A)],
        [("kv_get", A)],
    ),
    "arguments before the name": (
        [call(0, arguments='{"key"'), call(0, id="c1", name="kv_get", arguments=': "a"}')],
        [("kv_get", A)],
    ),
    "no ids": (
        [
            call(0, name="kv_get", arguments=""),
            *in_parts(0, A),
            call(1, name="kv_get", arguments=""),
            *in_parts(1, B),
        ],
        [("kv_get", A), ("kv_get", B)],
    ),
    "no index": (
        [
            call(id="c1", name="kv_get", arguments=""),
            *in_parts(None, A),
            call(id="c2", name="kv_get", arguments=""),
            *in_parts(None, B),
        ],
        [("kv_get", A), ("kv_get", B)],
    ),
    "neither index nor ids": (
        [call(name="kv_get", arguments=A), call(name="kv_get", arguments=B)],
        [("kv_get", A), ("kv_get", B)],
    ),
    "always index 0": (
        [
            call(0, id="c1", name="kv_get", arguments=A),
            call(0, id="c2", name="kv_get", arguments=B),
            call(0, id="c3", name="kv_exists", arguments="{}"),
        ],
        [("kv_get", A), ("kv_get", B), ("kv_exists", "{}")],
    ),
    "always index 0, in parts": (
        [
            call(0, id="c1", name="kv_get", arguments=""),
            *in_parts(0, A),
            call(0, id="c2", name="kv_get", arguments=""),
            *in_parts(0, B),
        ],
        [("kv_get", A), ("kv_get", B)],
    ),
    "an index that counts the pieces": (
        [call(0, id="c1", name="kv_get", arguments=""), call(1, arguments=A[:5]), call(2, arguments=A[5:])],
        [("kv_get", A)],
    ),
    "an index from 1": (
        [call(1, id="c1", name="kv_get", arguments=""), *in_parts(1, A)],
        [("kv_get", A)],
    ),
    "a new id in each piece": (
        [
            call(0, id="r0", name="kv_get", arguments=""),
            call(0, id="r1", arguments=A[:5]),
            call(0, id="r2", arguments=A[5:]),
        ],
        [("kv_get", A)],
    ),
    "one id for all calls": (
        [call(0, id="call_0", name="kv_get", arguments=A), call(1, id="call_0", name="kv_get", arguments=B)],
        [("kv_get", A), ("kv_get", B)],
    ),
    "interleaved calls": (
        [
            call(0, id="c1", name="kv_get", arguments=""),
            call(1, id="c2", name="kv_get", arguments=""),
            *(part for both in zip(in_parts(0, A), in_parts(1, B), strict=True) for part in both),
        ],
        [("kv_get", A), ("kv_get", B)],
    ),
    "several calls in a delta": (
        [
            {
                "content": None,
                "tool_calls": [
                    piece(0, id="c1", type="function", name="kv_get", arguments=A),
                    piece(1, id="c2", type="function", name="kv_get", arguments=B),
                ],
            }
        ],
        [("kv_get", A), ("kv_get", B)],
    ),
    "several calls in a delta, by their places": (
        [
            {"tool_calls": [piece(id="c1", name="kv_get"), piece(id="c2", name="kv_get")]},
            {"tool_calls": [piece(arguments=A[:5]), piece(arguments=B[:5])]},
            {"tool_calls": [piece(arguments=A[5:]), piece(arguments=B[5:])]},
        ],
        [("kv_get", A), ("kv_get", B)],
    ),
    "arguments as an object": (
        [call(0, id="c1", name="kv_get", arguments={"key": "a"})],
        [("kv_get", '{"key":"a"}')],
    ),
    "empty arguments before the real ones": (
        [call(0, id="c1", name="kv_get", arguments="{}"), *in_parts(0, A)],
        [("kv_get", A)],
    ),
    "no arguments": (
        [call(0, id="c1", name="kv_exists", arguments=""), call(1, id="c2", name="kv_exists")],
        [("kv_exists", "{}"), ("kv_exists", "{}")],
    ),
    "all arguments a second time": (
        [
            call(0, id="c1", name="kv_get", arguments=""),
            *in_parts(0, A),
            call(0, id="c1", name="kv_get", arguments=A),
        ],
        [("kv_get", A)],
    ),
    "all arguments so far in each piece": (
        [call(0, id="c1", name="kv_get", arguments=A[:end]) for end in (1, 2, 6, len(A))],
        [("kv_get", A)],
    ),
    "empty calls between": (
        [
            call(0, id="c1", name="kv_get", arguments=""),
            {"tool_calls": []},
            {"content": "", "tool_calls": None},
            call(1, arguments=""),
            *in_parts(0, A),
        ],
        [("kv_get", A)],
    ),
}
# Calls of answers in one piece, and the calls that the model made.
WHOLE_ANSWERS: dict[str, tuple[list[dict[str, Any]], Calls]] = {
    "OpenAI's own": (
        [piece(id="c1", type="function", name="kv_get", arguments=A), piece(id="c2", name="kv_get", arguments=B)],
        [("kv_get", A), ("kv_get", B)],
    ),
    "no ids": (
        [piece(name="kv_get", arguments=A), piece(id="", name="kv_get", arguments=B)],
        [("kv_get", A), ("kv_get", B)],
    ),
    "ids that say None": ([piece(id="None", name="kv_get", arguments=A)], [("kv_get", A)]),
    "one id for all calls": (
        [piece(0, id="call_0", name="kv_get", arguments=A), piece(0, id="call_0", name="kv_get", arguments=B)],
        [("kv_get", A), ("kv_get", B)],
    ),
    "arguments as an object": ([piece(id="c1", name="kv_get", arguments={"key": "a"})], [("kv_get", '{"key":"a"}')]),
    "no arguments": (
        [piece(id="c1", name="kv_exists", arguments=""), piece(id="c2", name="kv_exists", arguments=None)],
        [("kv_exists", "{}"), ("kv_exists", "{}")],
    ),
    "an empty call": ([piece(id="c1", name="kv_get", arguments=A), piece(id="c2")], [("kv_get", A)]),
}


@dataclass(frozen=True)
class Ending:
    """How a stream ends. last: the fields of its last choice; after: further events."""

    last: dict[str, Any]
    after: tuple[Any, ...] = ("[DONE]",)


OF_MOONSHOT = {"finish_reason": "tool_calls", "usage": USAGE}
ENDINGS = {
    "usage at the end": Ending({"finish_reason": "tool_calls"}, ({"choices": [], "usage": USAGE}, "[DONE]")),
    "usage in a choice": Ending(OF_MOONSHOT),
    "usage in Groq's field": Ending(
        {"finish_reason": "tool_calls"}, ({"choices": [], "x_groq": {"usage": USAGE}}, "[DONE]")
    ),
    "stopped though it calls": Ending({"finish_reason": "stop"}),
    "no end": Ending({"finish_reason": "tool_calls"}, ()),
    "no reason": Ending({"finish_reason": ""}),
}


def say(world: Installation, name: str, stream: list[Delta], ending: Ending, whole: list[Any] | None = None) -> str:
    """Have a model answer so, in a stream and in one piece; its id."""
    head: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in [{"role": "assistant"}, *stream]]
    events: list[Any] = [
        {**head, "choices": [choice]} for choice in [*choices, {"index": 0, "delta": {}, **ending.last}]
    ]
    events += [event if event == "[DONE]" else {**head, **event} for event in ending.after]
    texts = [event if event == "[DONE]" else json.dumps(event) for event in events]
    body = "".join(f"data: {text}\n\n" for text in texts).encode()
    world.fake.canned_answers[name] = CannedAnswer(body, headers={"content-type": "text/event-stream"})
    message = {"role": "assistant", "content": None, "tool_calls": whole or []}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    answer = {**head, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    world.fake.canned_answers[f"{name} whole"] = CannedAnswer(json.dumps(answer).encode())
    return world.add_model(f"calls:{name}")


def _chat_tools() -> list[Any]:
    return [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("kv_get", "kv_exists")]


async def call_by_streamed_chat(world: Installation, model: str) -> list[tuple[str, str, str]]:
    """Returns id, name and arguments of each call, put together as the simplest client does."""
    events = await world.stream_events(model, messages=QUESTION, tools=_chat_tools())
    calls: dict[int, list[str]] = {}
    for event in events[:-1]:
        for choice in event["choices"]:
            for part in choice["delta"].get("tool_calls") or ():
                if part["index"] not in calls:
                    assert part["type"] == "function"
                    calls[part["index"]] = [part["id"], part["function"]["name"], ""]
                else:
                    assert not part.get("id")
                    assert not part["function"].get("name")
                # A call that another one follows gets no more pieces.
                assert part["index"] == len(calls) - 1
                calls[part["index"]][2] += part["function"]["arguments"]
    reasons = [choice.get("finish_reason") for event in events[:-1] for choice in event["choices"]]
    assert [reason for reason in reasons if reason] in (["tool_calls"], ["stop"])
    assert sorted(calls) == list(range(len(calls)))
    return [(id_, name, arguments) for id_, name, arguments in calls.values()]


async def call_by_client(world: Installation, model: str) -> list[tuple[str, str, str]]:
    async with world.build_client(max_retries=0) as client:
        tools: Any = [{**tool, "function": {**tool["function"], "strict": True}} for tool in _chat_tools()]
        async with client.chat.completions.stream(model=model, messages=QUESTION, tools=tools) as stream:
            final = await stream.get_final_completion()
    calls: Any = final.choices[0].message.tool_calls
    return [(one.id, one.function.name, one.function.arguments) for one in calls]


async def call_by_whole_chat(world: Installation, model: str) -> list[tuple[str, str, str]]:
    answer = (await world.chat(model, messages=QUESTION, tools=_chat_tools())).json()
    calls = answer["choices"][0]["message"]["tool_calls"]
    assert {one["type"] for one in calls} == {"function"}
    return [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls]


async def call_by_messages(world: Installation, model: str) -> list[tuple[str, str, str]]:
    tools: Any = [{"name": name, "input_schema": SCHEMA} for name in ("kv_get", "kv_exists")]
    request: Any = {"model": model, "max_tokens": 100, "messages": QUESTION, "tools": tools}
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    async with anthropic.AsyncAnthropic(api_key=world.key, base_url=world.address, http_client=http) as client:
        open_blocks: set[int] = set()
        async with client.messages.stream(**request) as stream:
            async for event in stream:
                if event.type == "content_block_start":
                    open_blocks.add(event.index)
                elif event.type == "content_block_stop":
                    open_blocks.remove(event.index)
                elif event.type == "content_block_delta":
                    assert open_blocks == {event.index}
            message = await stream.get_final_message()
        assert message.stop_reason == "tool_use"
    blocks = [block for block in message.content if block.type == "tool_use"]
    return [(block.id, block.name, json.dumps(block.input)) for block in blocks]


async def call_by_whole_messages(world: Installation, model: str) -> list[tuple[str, str, str]]:
    tools: Any = [{"name": name, "input_schema": SCHEMA} for name in ("kv_get", "kv_exists")]
    request = {"model": model, "max_tokens": 100, "messages": QUESTION, "tools": tools}
    message = (await world.client.post("/v1/messages", json=request, headers=world.owner)).json()
    return [(block["id"], block["name"], json.dumps(block["input"])) for block in message["content"]]


async def call_by_responses(world: Installation, model: str) -> list[tuple[str, str, str]]:
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("kv_get", "kv_exists")]
    request = {"model": model, "input": QUESTION, "tools": tools, "stream": True}
    events = parse_events((await world.client.post("/v1/responses", json=request, headers=world.owner)).text)
    # As Codex reads them: each item when it is done.
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == items
    open_items: dict[str, str] = {}
    for event in events:
        if event["type"] == "response.output_item.added":
            open_items[event["item"]["id"]] = ""
        elif event["type"] == "response.function_call_arguments.delta":
            open_items[event["item_id"]] += event["delta"]
        elif event["type"] == "response.output_item.done":
            assert open_items.pop(event["item"]["id"]) == event["item"]["arguments"]
    return [(item["call_id"], item["name"], item["arguments"]) for item in items]


async def call_by_whole_responses(world: Installation, model: str) -> list[tuple[str, str, str]]:
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("kv_get", "kv_exists")]
    request = {"model": model, "input": QUESTION, "tools": tools}
    answer = (await world.client.post("/v1/responses", json=request, headers=world.owner)).json()
    return [(item["call_id"], item["name"], item["arguments"]) for item in answer["output"]]


async def call_by_agent(world: Installation, model: str) -> list[tuple[str, str, str]]:
    """Returns the calls as the provider gets them back, each with a result."""
    await run_calling_agent(world, model)
    *_, message = [each for each in world.fake.requests[-1].json["messages"] if each["role"] == "assistant"]
    results = [each["tool_call_id"] for each in world.fake.requests[-1].json["messages"] if each["role"] == "tool"]
    calls = message["tool_calls"]
    assert sorted(results) == sorted(one["id"] for one in calls)
    return [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls]


async def run_calling_agent(world: Installation, model: str) -> None:
    """Runs an agent that may call two tools."""
    app = await world.create_app()
    tools = [{"source": "builtin", "name": name} for name in ("kv_get", "kv_exists")]
    llm = {"type": "llm", "model": model, "input_template": "Go.", "output_key": "answer", "tools": tools}
    spec = {
        "spec_version": 1,
        "entry": "say",
        "nodes": {"say": llm, "done": {"type": "end", "output_template": "{{ state.answer }}"}},
        "edges": [{"from": "say", "to": "done"}],
        "tools": {"builtin": ["kv_get", "kv_exists"]},
    }
    response = await world.client.post(
        f"/v1/{app}/agents", json={"name": "caller", "graph_spec": spec}, headers=world.owner
    )
    assert response.status_code == 201, response.text
    run = await run_agent(world, f"/v1/{app}/agents/caller/runs")
    assert run["status"] == "completed", run["error"]


async def run_agent(world: Installation, runs: str) -> dict[str, Any]:
    answer = await world.client.post(runs, json={"input": {}}, headers=world.owner)
    assert answer.status_code == 201, answer.text
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            run: dict[str, Any] = (
                await world.client.get(f"{runs}/{answer.json()['run_id']}", headers=world.owner)
            ).json()["run"]
            if run["status"] not in ("queued", "running"):
                return run
            await asyncio.sleep(0.01)


Ask = Callable[[Installation, str], Coroutine[Any, Any, list[tuple[str, str, str]]]]
BY_STREAM: dict[str, Ask] = {
    "chat": call_by_streamed_chat,
    "chat, by its client": call_by_client,
    "messages": call_by_messages,
    "responses": call_by_responses,
    "agent": call_by_agent,
}
BY_WHOLE: dict[str, Ask] = {
    "chat": call_by_whole_chat,
    "messages": call_by_whole_messages,
    "responses": call_by_whole_responses,
}


def check_calls(calls: list[tuple[str, str, str]], expected: Calls) -> None:
    assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [
        (name, json.loads(arguments)) for name, arguments in expected
    ]
    ids = [id_ for id_, _, _ in calls]
    assert len(set(ids)) == len(ids)
    assert not {"", "None", None} & {*ids}


@pytest.mark.parametrize("wire", list(BY_STREAM))
@pytest.mark.parametrize("habit", list(STREAMS))
async def test_each_call_of_a_stream_arrives_once_and_whole(world: Installation, habit: str, wire: str) -> None:
    stream, expected_calls = STREAMS[habit]
    model = say(world, habit, stream, ENDINGS["usage at the end"])
    check_calls(await BY_STREAM[wire](world, model), expected_calls)


@pytest.mark.parametrize("wire", list(BY_WHOLE))
@pytest.mark.parametrize("habit", list(WHOLE_ANSWERS))
async def test_each_call_of_a_whole_answer_arrives_once(world: Installation, habit: str, wire: str) -> None:
    whole, expected_calls = WHOLE_ANSWERS[habit]
    model = say(world, f"w {habit}", [], ENDINGS["usage at the end"], whole)
    check_calls(await BY_WHOLE[wire](world, model), expected_calls)


@pytest.mark.parametrize("wire", list(BY_STREAM))
@pytest.mark.parametrize("ending", list(ENDINGS))
async def test_calls_are_whole_however_the_stream_ends(world: Installation, ending: str, wire: str) -> None:
    stream, expected_calls = STREAMS["empty ids and names later"]
    model = say(world, ending, stream, ENDINGS[ending])
    check_calls(await BY_STREAM[wire](world, model), expected_calls)
    if "usage" in ending:
        usages = [usage for usage in await world.list_usage() if usage.model == model]
        assert {(usage.prompt_tokens % 11, usage.completion_tokens % 7) for usage in usages} == {(0, 0)}


@pytest.mark.parametrize("wire", ["messages", "responses"])
async def test_other_wires_tell_the_usage_wherever_it_came(world: Installation, wire: str) -> None:
    stream, _ = STREAMS["OpenAI's own"]
    model = say(world, "moonshot", stream, ENDINGS["usage in a choice"])
    body = {"model": model, "stream": True, "max_tokens": 9, "messages": QUESTION}
    if wire == "responses":
        body = {"model": model, "stream": True, "input": QUESTION}
    events = parse_events((await world.client.post(f"/v1/{wire}", json=body, headers=world.owner)).text)
    usage = events[-2]["usage"] if wire == "messages" else events[-1]["response"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (11, 7)


async def test_a_model_that_does_not_stream_is_asked_for_a_whole_answer(world: Installation) -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "kv_get", "arguments": A}
    answer = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-pro",
        "status": "completed",
        "output": [{**item, "status": "completed"}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18},
    }
    world.fake.canned_answers["pro"] = CannedAnswer(json.dumps(answer).encode())
    world.fake.behaviour = "said:pro"
    try:
        for ask in (call_by_streamed_chat, call_by_client):
            check_calls(await ask(world, "openai/gpt-5-pro"), [("kv_get", A)])
            assert not world.fake.requests[-1].json.get("stream")
    finally:
        world.fake.behaviour = ""


@pytest.mark.parametrize("field", ["calls", "arguments"])
async def test_a_stream_with_far_too_many_calls_ends_with_an_error(world: Installation, field: str) -> None:
    if field == "calls":
        pieces = [piece(number, id=f"c{number}", name="kv_get", arguments="{}") for number in range(10_002)]
        stream: list[Delta] = [{"tool_calls": pieces[start : start + 100]} for start in range(0, len(pieces), 100)]
    else:
        stream = [call(0, id="c1", name="kv_get", arguments="[" * 2**20) for _ in range(9)]
    model = say(world, f"too many {field}", stream, ENDINGS["usage at the end"])
    events = await world.stream_events(model, messages=QUESTION, tools=_chat_tools())
    assert events[-1]["error"]["code"] == "upstream_malformed"


async def test_a_call_in_the_middle_of_a_character_and_an_escape_is_one_call(world: Installation) -> None:
    arguments = json.dumps({"key": 'a"}\\{'})
    parts = [call(0, id="c1", name="kv_get", arguments=arguments[:1])]
    parts += [call(0, arguments=character) for character in arguments[1:]]
    parts += [call(1, id="c2", name="kv_get", arguments=B)]
    model = say(world, "letters", parts, ENDINGS["usage at the end"])
    for ask in BY_STREAM.values():
        check_calls(await ask(world, model), [("kv_get", arguments), ("kv_get", B)])
