"""Small requests that ask the built-in model for much work: by each wire, and by an agent."""

import asyncio
import gc
import json
import string
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from baobab.runtime.agents.spec.answer_schema import find_mismatch
from tests.tools.ai.conftest import TIMEOUT_SECONDS, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = 2**20
T = TypeVar("T")


def long_pattern() -> dict[str, Any]:
    """Strings of 10,000 characters to a pattern, for each of many names."""
    text = {"type": "string", "pattern": "^" + "[a-z]?" * 60 + "$", "minLength": 10_000}
    names = [f"p{number}" for number in range(60)]
    return _object_schema({name: {"$ref": "#/$defs/t"} for name in names}, {"t": text})


def wide_classes() -> dict[str, Any]:
    """Classes of all characters that there are."""
    names = [letter + other for letter in string.ascii_lowercase for other in "abc"]
    return _object_schema(
        {name: {"type": "string", "pattern": f"^[\\u0000-\\uffff{name}]{{5}}$"} for name in names}, {}
    )


def many_options() -> dict[str, Any]:
    """Thousands of options, none of which may be."""
    return _object_schema({"it": {"enum": list(range(3000)), "type": "string"}}, {})


def bushy() -> dict[str, Any]:
    """References that branch at every level."""
    branches = {"x": {"anyOf": [{"$ref": "#/$defs/y"}] * 9}, "y": {"anyOf": [{"$ref": "#/$defs/x"}] * 9}}
    return _object_schema({"it": {"$ref": "#/$defs/x"}}, branches)


def long_errors() -> dict[str, Any]:
    """Branches each of which says of a long value that it is wrong."""
    return _object_schema({"it": {"anyOf": [{"const": number} for number in range(500)], "default": "x" * 40_000}}, {})


def other_dialect() -> dict[str, Any]:
    """A dialect whose rules are not ours, where a regular expression never ends."""
    inner = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "pattern": "^(a+)+$"}
    return _object_schema({"it": inner}, {})


def _object_schema(properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "$defs": definitions}


PROMPT = json.dumps({"it": "a" * 40_000 + "!"})
SCHEMAS = [long_pattern, wide_classes, many_options, bushy, long_errors, other_dialect]
FILLED = "/call look " + json.dumps({"all": ["$input"] * 20_000})


def build_tool(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "look", "parameters": schema}}


def build_requests(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The same by each wire: as the answer's schema, and as that of a tool."""
    messages = [{"role": "user", "content": PROMPT}]
    answer = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    function_tool = {"type": "function", "name": "look", "parameters": schema}
    tool = {"name": "look", "input_schema": schema}
    return [
        ("chat/completions", {"messages": messages, "response_format": answer}),
        ("chat/completions", {"messages": messages, "tools": [build_tool(schema)], "tool_choice": "required"}),
        ("responses", {"input": PROMPT, "tools": [function_tool], "tool_choice": "required"}),
        ("responses", {"input": PROMPT, "text": {"format": {"type": "json_schema", "name": "it", "schema": schema}}}),
        ("messages", {"messages": messages, "tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 100}),
    ]


async def measure_request(world: Installation, path: str, body: dict[str, Any]) -> tuple[int, int]:
    """The status, and the most bytes that were held on the way."""

    async def send_request() -> int:
        answer = await world.client.post(f"/v1/{path}", json={"model": "baobab/echo", **body}, headers=world.owner)
        return answer.status_code

    return await measure_memory(send_request)


async def measure_memory(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """What the work returns, and the most bytes that were held on the way: the least of three times, for what the
    process does beside it, such as an import in the background, is counted too, and does not come again.
    """
    peaks = []
    for _ in range(3):
        gc.collect()
        tracemalloc.start()
        try:
            result = await work()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return result, min(peaks)


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_a_hostile_schema_costs_a_bounded_amount_of_work_and_memory(world: Installation, schema: Any) -> None:
    for path, body in build_requests({"type": "object"}):
        # What is loaded with the first use is not the request's.
        await world.client.post(f"/v1/{path}", json={"model": "baobab/echo", **body}, headers=world.owner)
    for path, body in build_requests(schema()):
        status, peak = await measure_request(world, path, body)
        assert status in (200, 400), path
        assert peak < 20 * MEGABYTE, (path, peak)


async def test_what_is_filled_into_arguments_is_bounded_by_the_context_window(world: Installation) -> None:
    prompt = FILLED + "\n" + "x" * 70_000
    for path, body in (
        ("chat/completions", {"messages": [{"role": "user", "content": prompt}], "tools": [build_tool({})]}),
        ("responses", {"input": prompt, "tools": [{"type": "function", "name": "look", "parameters": {}}]}),
        (
            "messages",
            {
                "messages": [{"role": "user", "content": prompt}],
                "tools": [{"name": "look", "input_schema": {"type": "object"}}],
                "max_tokens": 100,
            },
        ),
    ):
        status, peak = await measure_request(world, path, body)
        assert status == 400, path
        assert peak < 20 * MEGABYTE, (path, peak)


async def test_results_are_filled_in_within_the_same_bound(world: Installation) -> None:
    plan = '/call look {}\n/then look {"all": ' + json.dumps(["$1"] * 5_000) + "}"
    call = {"id": "one", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": plan},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "one", "content": json.dumps(list(range(20_000)))},
    ]
    status, peak = await measure_request(world, "chat/completions", {"messages": messages, "tools": [build_tool({})]})
    assert status == 400
    assert peak < 20 * MEGABYTE


async def create_agent(world: Installation, app: str, name: str, schema: dict[str, Any]) -> str:
    """The path of the runs of an agent that asks the model for an answer by a schema."""
    llm = {
        "type": "llm",
        "model": "baobab/echo",
        "input_template": "{{ input.text }}",
        "output_key": "answer",
        "output_schema": schema,
    }
    spec = {
        "spec_version": 1,
        "entry": "say",
        "nodes": {"say": llm, "done": {"type": "end", "output_template": "{{ state.answer }}"}},
        "edges": [{"from": "say", "to": "done"}],
    }
    agent = {"name": name, "graph_spec": spec, "dedupe_window_seconds": 0}
    response = await world.client.post(f"/v1/{app}/agents", json=agent, headers=world.owner)
    assert response.status_code == 201, response.text
    return f"/v1/{app}/agents/{name}/runs"


async def run_agent(world: Installation, runs: str, text: str) -> dict[str, Any]:
    """A run, once it has ended; the server answers meanwhile."""
    response = await world.client.post(runs, json={"input": {"text": text}}, headers=world.owner)
    assert response.status_code == 201, response.text
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            answer = await world.client.get(f"{runs}/{response.json()['run_id']}", headers=world.owner)
            assert answer.status_code == 200, answer.text
            run: dict[str, Any] = answer.json()["run"]
            if run["status"] not in ("queued", "running"):
                return run
            await asyncio.sleep(0.05)


async def test_an_agent_that_asks_for_it_fails_and_holds_nobody_up(world: Installation) -> None:
    app = await world.create_app()
    # What the first run of a process imports is not what a run holds.
    harmless = await run_agent(world, await create_agent(world, app, "harmless", _object_schema({}, {})), "{}")
    assert harmless["status"] == "completed", harmless
    bomb = await create_agent(world, app, "bomb", many_options())
    run, peak = await measure_memory(lambda: run_agent(world, bomb, PROMPT))
    assert run["status"] == "failed"
    assert "more work than the built-in model does" in run["error"]["message"]
    assert peak < 20 * MEGABYTE


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_an_answer_is_held_against_a_hostile_schema_within_bounds(schema: Any) -> None:
    tracemalloc.start()
    try:
        find_mismatch(schema(), json.loads(PROMPT))
        assert tracemalloc.get_traced_memory()[1] < 20 * MEGABYTE
    finally:
        tracemalloc.stop()


async def test_no_schema_makes_the_server_fetch_anything(world: Installation) -> None:
    schema = _object_schema({"it": {"$ref": f"{world.fake.url}/schema.json"}}, {})
    request_count = len(world.fake.requests)
    assert (await measure_request(world, *build_requests(schema)[0]))[0] == 400
    assert find_mismatch(schema, {"it": 1}) is None
    assert len(world.fake.requests) == request_count
