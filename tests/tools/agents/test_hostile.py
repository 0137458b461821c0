"""Agents under bad input, strangers, and callers who do not behave."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from baobab import composition
from baobab.runtime.agents.tables import runs
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.providers import build_own_server
from baobab.settings import load_settings
from baobab.tools.agents.errors import LimitExceeded
from baobab.tools.core.auth.callers import Anonymous
from baobab.tools.core.context import RequestContext
from baobab.tools.core.stream import Stream
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.jobs import list_unfinished_jobs, run_due_jobs
from tests.runtime.gateway.upstream import CannedAnswer, Upstream, start_upstream
from tests.tools.agents.conftest import TIMEOUT_SECONDS, Agency, build_graph
from tests.tools.conftest import ToolHarness

NAMES = ["kv_get", "kv_put", "interrupt"]
TOOLS = {"tools": {"builtin": NAMES}}
DONE = {"type": "end", "output_template": "{{ state.answer }}"}
NOWHERE = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ToolHarness]:
    """One that may call this machine, where webhooks are received; nothing else that is private."""
    clock = FixedClock()
    settings = load_settings({**prepare_data(tmp_path), "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}, data=tmp_path)
    async with composition.open_application(settings, clock=clock) as application:
        yield ToolHarness(application.services, application.registry, clock, tmp_path)
    release_data(tmp_path)


def tool_node(tool: str, **arguments: Any) -> dict[str, Any]:
    ref = {"source": "builtin", "name": tool}
    return {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": "answer"}


def single_node_graph(node: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """A graph of a node and an end that returns what it wrote."""
    return build_graph({"do": node, "done": DONE}, ("do", "done"), **{**TOOLS, **rest})


USE_NONE = tool_node("kv_get", key="{{ item }}") | {"type": "map", "over": "{{ input.none }}"}
SAY = single_node_graph({"type": "llm", "input_template": "/say Hello.", "output_key": "answer"})
ASK = single_node_graph(tool_node("interrupt", reason="Go on?"))


async def list_issues(agency: Agency, spec: Any) -> list[dict[str, Any]]:
    result = await agency.harness.call("agents_validate", agency.owner, app_id=agency.app_id, name="a", graph_spec=spec)
    return list(result.get("issues", []))


def nest_value(levels: int) -> Any:
    value: Any = "{{ input.x }}"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "spec",
    [
        {**SAY, "nodes": {f"n{n}": {"type": "end"} for n in range(10_000)}},
        {**SAY, "edges": [{"from": "do", "to": "done"}] * 10_000},
        single_node_graph(tool_node("kv_get", key=nest_value(40))),
        {**SAY, "nodes": {"do": {"type": "end", "output_template": nest_value(60)}}, "entry": "do"},
        {**SAY, "nodes": {"a" * 65: {"type": "end"}}, "entry": "a" * 65},
        {**SAY, "nodes": {"line\nbreak": {"type": "end"}}, "entry": "line\nbreak"},
        {**SAY, "limits": {"max_steps": 10**400}},
        single_node_graph(tool_node("kv_get", key="{{ state." + "a." * 5000 + "b }}")),
        {},
        {"spec_version": 2},
    ],
    ids=lambda spec: str(spec)[:30],
)
async def test_a_graph_that_cannot_be_is_told_what_is_wrong_and_is_not_kept(agency: Agency, spec: Any) -> None:
    issues = await list_issues(agency, spec)
    assert 0 < len(issues) <= 100
    assert all(issue["message"] for issue in issues)
    arguments = {"app_id": agency.app_id, "name": "a", "graph_spec": spec}
    assert (await agency.catch_refusal("agents_create", agency.owner, **arguments)).code == "invalid_graph_spec"
    assert (await agency.harness.call("agents_list", agency.owner, app_id=agency.app_id))["agents"] == []


async def test_nodes_may_be_called_anything(agency: Agency) -> None:
    names = ["a:b|c", "__start__", "__end__", "über 🜚", "n0_tool", "checkpoint_ns"]
    nodes: dict[str, Any] = {name: {"type": "llm", "output_key": f"k{n}"} for n, name in enumerate(names)}
    nodes["done"] = {"type": "end", "output_template": "ok"}
    spec = build_graph(nodes, *zip(names, [*names[1:], "done"], strict=True))
    await agency.create_agent("odd", spec)
    run = await agency.run_agent("odd")
    assert run["status"] == "completed", run
    starts = [event["payload"]["node_id"] for event in await agency.list_events("odd", run["id"], "node_start")]
    assert starts == [*names, "done"]


async def test_a_graph_of_200_nodes_is_run_as_far_as_its_steps_reach(agency: Agency) -> None:
    names = [f"n{n}" for n in range(199)]
    nodes: dict[str, Any] = dict.fromkeys(names, USE_NONE)
    spec = build_graph({**nodes, "done": DONE}, *zip(names, [*names[1:], "done"], strict=True), **TOOLS)
    await agency.create_agent("long", {**spec, "limits": {"max_steps": 200}})
    run = await agency.run_agent("long", input={"none": []})
    assert run["output"] == [], run["error"]
    await agency.create_agent("short", {**spec, "limits": {"max_steps": 199}})
    assert (await agency.run_agent("short", input={"none": []}))["error"]["type"] == "max_steps"


async def test_a_map_over_more_than_the_store_answers_in_a_second_takes_longer(agency: Agency) -> None:
    every = {**USE_NONE, "over": "{{ input.keys }}"}
    await agency.create_agent("many", single_node_graph(every, limits={"max_tool_calls": 500}))
    await agency.put_key("a", 1)
    running = asyncio.create_task(agency.run_agent("many", input={"keys": ["a"] * 60}))
    while not running.done():
        agency.harness.clock.advance(0.1)
        await asyncio.wait({running}, timeout=0.05)
    run = running.result()
    assert run["output"] == [{"value": 1}] * 60, run["error"]


async def test_what_looks_like_a_template_in_an_input_stays_text(agency: Agency) -> None:
    await agency.create_agent(
        "echo", single_node_graph({"type": "llm", "input_template": "{{ input.say }}", "output_key": "answer"})
    )
    run = await agency.run_agent("echo", input={"say": "{{ state.answer }} {{ input.secret }}", "secret": "hidden"})
    assert "{{ input.secret }}" in run["output"]
    assert "hidden" not in run["output"]


async def test_an_input_without_a_field_that_a_template_names_ends_the_run(agency: Agency) -> None:
    await agency.create_agent("reader", single_node_graph(tool_node("kv_get", key="{{ input.key }}")))
    run = await agency.run_agent("reader")
    assert run["error"]["type"] == "invalid_template"
    assert "input.key" in run["error"]["message"]


async def test_an_output_of_more_than_a_megabyte_fails_the_run(agency: Agency) -> None:
    text = "x" * 250_000
    spec = {
        "spec_version": 1,
        "entry": "done",
        "nodes": {"done": {"type": "end", "output_template": ["{{ input }}"] * 5}},
    }
    await agency.create_agent("large", spec)
    run = await agency.run_agent("large", input={"text": text})
    assert run["error"]["type"] in ("output_too_large", "invalid_template")
    assert run["output"] is None
    spec["nodes"] = {"done": {"type": "end", "output_template": ["{{ input }}"] * 3}}
    await agency.create_agent("fits", spec)
    run = await agency.run_agent("fits", input={"text": text})
    assert len(json.dumps(run["output"])) > 750_000


async def test_a_result_beyond_what_a_run_holds_is_an_error_of_its_call(agency: Agency) -> None:
    values = {f"k{n}": "x" * 200_000 for n in range(2)}
    for key, value in values.items():
        await agency.put_key(key, value)
    spec = single_node_graph(
        tool_node("kv_batch", ops=[{"op": "get", "key": key} for key in values]), tools={"builtin": ["kv_batch"]}
    )
    spec["nodes"]["do"]["tool_ref"]["name"] = "kv_batch"
    await agency.create_agent("reader", spec)
    run = await agency.run_agent("reader")
    if run["status"] == "paused":
        run = await agency.decide("reader", run["id"])
    assert run["error"]["type"] == "tool_failed"
    (end_event,) = await agency.list_events("reader", run["id"], "tool_call_end")
    assert end_event["payload"]["error"]["code"] == "RESULT_TOO_LARGE"


async def test_an_input_of_too_many_fields_or_of_another_shape_is_refused(agency: Agency) -> None:
    await agency.create_agent("say", SAY)
    for wrong in ({f"f{n}": n for n in range(1001)}, [1], "text", None):
        refusal = await agency.catch_refusal("agents_run", agency.owner, app_id=agency.app_id, name="say", input=wrong)
        assert refusal.status in (400, 422), wrong
    assert await list_unfinished_jobs(agency.harness) == []


async def test_runs_of_others_and_of_other_apps_and_of_other_agents_are_no_runs(agency: Agency) -> None:
    await agency.create_agent("say", SAY)
    await agency.create_agent("other", SAY)
    run = await agency.run_agent("say")
    elsewhere = await agency.harness.create_app_row(agency.owner.organisation_id, "app_000000000002")
    stranger = await agency.harness.sign_up("stranger@example.com")
    for tool in ("agents_runs_get", "agents_runs_cancel", "agents_runs_events_list", "agents_runs_fork"):
        for app_id, name, run_id in (
            (elsewhere, "say", run["id"]),
            (agency.app_id, "other", run["id"]),
            (agency.app_id, "say", NOWHERE),
        ):
            refusal = await agency.catch_refusal(tool, agency.owner, app_id=app_id, name=name, id=run_id)
            assert refusal.code == "run_not_found", tool
        refusal = await agency.catch_refusal(tool, stranger, app_id=agency.app_id, name="say", id=run["id"])
        assert refusal.status in (403, 404), tool


async def test_an_ended_run_is_neither_resumed_nor_cancelled(agency: Agency) -> None:
    await agency.create_agent("ask", ASK)
    run = await agency.run_agent("ask")
    token = (await agency.list_events("ask", run["id"], "run_paused"))[0]["payload"]["approval_token"]
    run = await agency.decide("ask", run["id"])
    arguments = {"app_id": agency.app_id, "name": "ask", "id": run["id"]}
    again = {**arguments, "approval_token": token, "approved": False}
    refusal = await agency.catch_refusal("agents_runs_resume", agency.owner, **again)
    assert refusal.code == "APPROVAL_ALREADY_DECIDED"
    unknown = {**again, "approval_token": "appr_" + "0" * 40}
    assert (await agency.catch_refusal("agents_runs_resume", agency.owner, **unknown)).code == "run_ended"
    assert (await agency.catch_refusal("agents_runs_cancel", agency.owner, **arguments)).code == "run_ended"
    assert (await agency.get_run("ask", run["id"])) == run


async def test_a_token_of_one_run_decides_nothing_in_another(agency: Agency) -> None:
    await agency.create_agent("ask", ASK)
    runs = [await agency.run_agent("ask", input={"n": n}) for n in range(2)]
    token = (await agency.list_events("ask", runs[0]["id"], "run_paused"))[0]["payload"]["approval_token"]
    arguments = {"app_id": agency.app_id, "name": "ask", "id": runs[1]["id"], "approved": True}
    for stale in (token, "appr_" + "0" * 40):
        refusal = await agency.catch_refusal("agents_runs_resume", agency.owner, **arguments, approval_token=stale)
        assert refusal.code == "approval_token_invalid"
    assert (await agency.get_run("ask", runs[1]["id"]))["status"] == "paused"


async def test_decisions_at_once_are_one(agency: Agency) -> None:
    await agency.create_agent("put", single_node_graph(tool_node("kv_put", key="x", value=1)))
    run = await agency.run_agent("put")
    token = (await agency.list_events("put", run["id"], "run_paused"))[0]["payload"]["approval_token"]
    arguments = {"app_id": agency.app_id, "name": "put", "id": run["id"], "approval_token": token, "approved": True}
    outcomes = await asyncio.gather(
        *(agency.harness.call("agents_runs_resume", agency.owner, **arguments) for _ in range(8)),
        return_exceptions=True,
    )
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    run = await agency.wait_for_run("put", run["id"])
    assert (run["status"], await agency.get_key("x")) == ("completed", "1")


async def follow_events(agency: Agency, name: str, run_id: str) -> AsyncGenerator[bytes, None]:
    """The events of a run as a stream."""
    arguments = {"app_id": agency.app_id, "name": name, "id": run_id}
    context = RequestContext("test", "stream", streams=True)
    result = await agency.harness.registry.call("agents_runs_events", arguments, agency.owner, context)
    assert isinstance(result, Stream)
    return result.pieces


async def test_readers_that_go_away_leave_nothing_behind(agency: Agency) -> None:
    await agency.create_agent("ask", ASK)
    run = await agency.run_agent("ask")
    before = asyncio.all_tasks()
    for _ in range(20):
        pieces = await follow_events(agency, "ask", run["id"])
        assert b"retry" in await anext(pieces)
        assert b"run_start" in await anext(pieces)
        await pieces.aclose()
    reader = await follow_events(agency, "ask", run["id"])

    async def read() -> None:
        async for frame in reader:
            if b"run_paused" in frame:
                pause_event.set()

    pause_event = asyncio.Event()
    reading = asyncio.create_task(read())
    await pause_event.wait()
    reading.cancel()
    await asyncio.wait({reading})
    # The job runner has tasks that come and go; what a reader left behind would stay.
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not asyncio.all_tasks() <= before:
            await asyncio.sleep(0.01)
    assert (await agency.decide("ask", run["id"]))["status"] == "completed"


async def test_limits_of_an_hour_are_exact_when_many_start_at_once(agency: Agency) -> None:
    each = {"visibility": "authenticated", "max_runs_per_user_per_hour": 5}
    await agency.create_agent("each", SAY, **each)
    await agency.create_agent("all", SAY, visibility="authenticated", max_runs_per_app_per_hour=12)

    async def start(name: str, user: str, n: int) -> str:
        try:
            await agency.start_run(name, agency.end_user(user), input={"n": n})
        except LimitExceeded as refusal:
            return str(refusal.details["limit"])
        return "started"

    outcomes = await asyncio.gather(*(start("each", f"user {n % 2}", n) for n in range(50)))
    assert [outcomes[n::2].count("started") for n in (0, 1)] == [5, 5]
    outcomes = await asyncio.gather(*(start("all", f"user {n}", n) for n in range(50)))
    assert outcomes.count("started") == 12
    assert await start("all", "user 99", 99) == "max_runs_per_app_per_hour"
    agency.harness.clock.advance(3600)
    assert await start("all", "user 99", 99) == "started"
    await run_due_jobs(agency.harness)


async def test_an_address_is_a_network_where_one_customer_holds_it_whole(agency: Agency) -> None:
    public = {"visibility": "public", "safety_acknowledged": True}
    await agency.create_agent("say", SAY, **public, max_runs_per_ip_per_hour=2)
    arguments: dict[str, Any] = {"app_id": agency.app_id, "name": "say"}

    async def start(ip: str, n: int) -> str:
        try:
            await agency.harness.call("agents_public_run", Anonymous(agency.app_id), ip=ip, input={"n": n}, **arguments)
        except LimitExceeded as refusal:
            return str(refusal.details["limit"])
        return "started"

    outcomes = [await start(f"2001:db8::{n}", n) for n in range(3)]
    assert outcomes == ["started", "started", "max_runs_per_ip_per_hour"]
    assert await start("2001:db8:0:1::1", 4) == "started"
    await run_due_jobs(agency.harness)


async def test_a_refused_start_does_not_tell_a_stranger_of_another_strangers_run(agency: Agency) -> None:
    await agency.create_agent("say", SAY, visibility="public", safety_acknowledged=True, dedupe_window_seconds=60)
    arguments: dict[str, Any] = {"app_id": agency.app_id, "name": "say", "ip": "192.0.2.1", "idempotency_key": "k"}
    anybody = Anonymous(agency.app_id)
    await agency.harness.call("agents_public_run", anybody, input={"n": 3}, **arguments)
    refusal = await agency.catch_refusal("agents_public_run", anybody, input={"n": 2}, **arguments)
    assert (refusal.status, refusal.details) == (409, {})
    await run_due_jobs(agency.harness)


async def test_strangers_behind_one_address_never_share_a_run(agency: Agency) -> None:
    await agency.create_agent("say", SAY, visibility="public", safety_acknowledged=True, dedupe_window_seconds=60)
    arguments: dict[str, Any] = {"app_id": agency.app_id, "name": "say", "ip": "192.0.2.1"}
    anybody = Anonymous(agency.app_id)

    async def start(n: int, **more: str) -> dict[str, Any]:
        run: dict[str, Any] = await agency.harness.call(
            "agents_public_run", anybody, input={"n": n}, **arguments, **more
        )
        return run

    runs = [await start(n) for n in (1, 1, 2)]
    assert len({run["run_id"] for run in runs}) == 3
    one, other = (run["visitor_id"] for run in runs[:2])
    keyed_runs = [
        await start(1, idempotency_key="k", **who) for who in ({"visitor_id": one}, {"visitor_id": other}, {})
    ]
    assert len({run["run_id"] for run in keyed_runs}) == 3
    again = [await start(1, idempotency_key="k", **who) for who in ({"visitor_id": one}, {"visitor_id": other}, {})]
    who = [[(run["run_id"], run["visitor_id"]) for run in runs] for runs in (keyed_runs, again)]
    assert who[0] == who[1]
    await run_due_jobs(agency.harness)


async def test_runs_at_once_are_exact_when_many_start(agency: Agency) -> None:
    await agency.create_agent("ask", ASK, max_concurrent_runs=7)

    async def start(n: int) -> bool:
        try:
            await agency.start_run("ask", input={"n": n})
        except LimitExceeded:
            return False
        return True

    assert sum(await asyncio.gather(*(start(n) for n in range(50)))) == 7
    await run_due_jobs(agency.harness)


@pytest.mark.parametrize(
    ("visibility", "runners"),
    [("private", ["owner"]), ("authenticated", ["owner", "user"]), ("public", ["owner", "user", "anonymous"])],
)
async def test_whom_an_agent_can_be_seen_by_may_run_it(agency: Agency, visibility: str, runners: list[str]) -> None:
    await agency.create_agent("say", SAY, visibility=visibility, safety_acknowledged=True)
    callers = {
        "owner": ("agents_run", agency.owner),
        "user": ("agents_public_run", agency.end_user("ada")),
        "anonymous": ("agents_public_run", Anonymous(agency.app_id)),
    }
    arguments: dict[str, Any] = {"app_id": agency.app_id, "name": "say", "input": {}}
    for who, (tool, caller) in callers.items():
        if who in runners:
            assert (await agency.harness.call(tool, caller, **arguments))["run_id"]
        else:
            assert (await agency.catch_refusal(tool, caller, **arguments)).status == 403, who
    stranger = await agency.harness.sign_up("stranger@example.com")
    assert (await agency.catch_refusal("agents_run", stranger, **arguments)).status in (403, 404)
    await run_due_jobs(agency.harness)


async def test_a_cycle_goes_round_until_its_condition_holds(agency: Agency) -> None:
    nodes = {
        "count": tool_node("kv_incr", key="n") | {"output_key": "n"},
        "done": {"type": "end", "output_template": "{{ state.n.value }}"},
    }
    spec = build_graph(nodes, tools={"builtin": ["kv_incr"]}, limits={"max_steps": 20})
    spec["edges"] = [
        {"from": "count", "to": "done", "when": {">=": [{"var": "state.n.value"}, {"var": "input.to"}]}},
        {"from": "count", "to": "count"},
    ]
    await agency.create_agent("counter", spec)
    run = await agency.run_agent("counter", input={"to": 3})
    for _ in range(3):
        assert run["status"] == "paused", run
        run = await agency.decide("counter", run["id"])
    assert run["output"] == 3, run


async def test_a_model_answers_in_the_shape_that_is_asked_for_and_edges_read_it(agency: Agency) -> None:
    schema = {
        "type": "object",
        "properties": {"mood": {"enum": ["glad", "angry"]}, "score": {"type": "integer"}},
        "required": ["mood", "score"],
    }
    judge = {"type": "llm", "input_template": "{{ input.said }}", "output_schema": schema, "output_key": "verdict"}
    ends = {name: {"type": "end", "output_template": [name, "{{ state.verdict }}"]} for name in ("calm", "call")}
    spec = build_graph({"judge": judge, **ends})
    spec["edges"] = [
        {"from": "judge", "to": "call", "when": {"==": [{"var": "state.verdict.mood"}, "angry"]}},
        {"from": "judge", "to": "calm"},
    ]
    await agency.create_agent("judge", spec)
    for mood, way in (("angry", "call"), ("glad", "calm")):
        verdict = {"mood": mood, "score": 3}
        run = await agency.run_agent("judge", input={"said": f"They said {json.dumps(verdict)}."})
        assert run["output"] == [way, verdict], run


async def test_a_run_that_holds_more_than_its_checkpoints_may_fails(agency: Agency) -> None:
    await agency.put_key("a", "x" * 250_000)
    node = {**USE_NONE, "over": "{{ input.keys }}"}
    spec = single_node_graph(node, limits={"max_tool_calls": 500})
    spec["nodes"]["done"] = {"type": "end", "output_template": "ok"}
    await agency.create_agent("a", spec)
    assert (await agency.run_agent("a", input={"keys": ["a"] * 5}))["status"] == "completed"
    agency.harness.clock.advance(2)
    run = await agency.run_agent("a", input={"keys": ["a"] * 45})
    assert (run["status"], run["error"]["type"]) == ("failed", "state_too_large"), run


# --- values that no run can hold -----------------------------------------------------------------------------------

UNHOLDABLE = {
    "no number": "NaN",
    "no end": "1e999",
    "half a character": '"\\ud800"',
    "NUL": '"\\u0000"',
    "deep": "[" * 300 + "]" * 300,
    "deeper than Python": "[" * 100_000 + "]" * 100_000,
}


def set_answer(agency: Agency, fake: Upstream, message: dict[str, Any]) -> None:
    """Have the model `lab/m` say so, whatever it is asked."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    fake.canned_answers["it"] = CannedAnswer(json.dumps(body).encode())
    price, features = Price(prompt=1, completion=1), frozenset(["tools", "json_schema"])
    model = Model("lab/m", "it", "chat", price, 8192, 64, litellm="lab/said:it", provider="lab", features=features)
    agency.harness.services.part(Gateway).add_provider(build_own_server("lab", f"{fake.url}/v1", "key"), [model])


@pytest.mark.parametrize("value", UNHOLDABLE.values(), ids=list(UNHOLDABLE))
async def test_a_model_that_answers_what_no_run_can_hold_fails_it_and_it_is_not_our_fault(
    agency: Agency, value: str
) -> None:
    node = {"type": "llm", "output_schema": {"type": "object"}, "output_key": "answer"}
    await agency.create_agent("a", single_node_graph(node), default_model="lab/m")
    async with start_upstream() as fake:
        set_answer(agency, fake, {"content": value})
        run = await agency.run_agent("a")
    assert run["error"]["type"] == "invalid_output", run


@pytest.mark.parametrize(
    ("answers", "requests", "output"),
    [
        (['```json\n{"score": 1}\n```'], 1, {"score": 1}),
        (["Gladly!", '{"score": 2}'], 2, {"score": 2}),
        (['{"score": "high"}', '```\n{"score": 3}\n```'], 2, {"score": 3}),
        (["Gladly!", "Gladly!", '{"score": 4}'], 2, None),
    ],
)
async def test_a_model_whose_answer_misses_its_schema_is_asked_once_more(
    agency: Agency, answers: list[str], requests: int, output: Any
) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
    node = {"type": "llm", "output_schema": schema, "output_key": "answer"}
    await agency.create_agent("a", single_node_graph(node), default_model="lab/m")
    async with start_upstream() as fake:
        set_answer(agency, fake, {"content": answers[0]})
        following = iter(answers[1:])

        class Turns(dict[str, CannedAnswer]):
            def __getitem__(self, name: str) -> CannedAnswer:
                answer = super().__getitem__(name)
                body = json.loads(answer.body)
                body["choices"][0]["message"]["content"] = next(following, "")
                self[name] = CannedAnswer(json.dumps(body).encode())
                return answer

        fake.canned_answers = Turns(fake.canned_answers)
        run = await agency.run_agent("a")
        assert len(fake.requests) == requests
    assert (run["output"], run["error"] and run["error"]["type"]) == (output, None if output else "invalid_output")
    usages = await agency.list_events("a", run["id"], "llm_token_usage")
    assert len(usages) == requests


@pytest.mark.parametrize("value", UNHOLDABLE.values(), ids=list(UNHOLDABLE))
async def test_a_model_that_calls_with_what_no_run_can_hold_is_told_so(agency: Agency, value: str) -> None:
    call = {"name": "kv_put", "arguments": f'{{"key": "a", "value": {value}}}'}
    node = {"type": "llm", "output_key": "answer", "tools": [{"source": "builtin", "name": "kv_put"}]}
    await agency.create_agent("a", single_node_graph(node, limits={"max_steps": 2}), default_model="lab/m")
    async with start_upstream() as fake:
        set_answer(agency, fake, {"tool_calls": [{"id": "1", "type": "function", "function": call}]})
        run = await agency.run_agent("a")
        message = fake.requests[-1].json["messages"][-1]
    assert (run["status"], run["error"]["type"]) == ("failed", "max_steps"), run
    assert "INVALID_ARGUMENTS" in message["content"]
    assert await agency.get_key("a") is None


async def test_a_stored_value_that_no_run_can_hold_is_an_error_of_its_call(agency: Agency) -> None:
    for levels in (90, 220):
        await agency.put_key(f"a{levels}", nest_value(levels))
        await agency.create_agent(f"a{levels}", single_node_graph(tool_node("kv_get", key=f"a{levels}")))
    assert (await agency.run_agent("a90"))["status"] == "completed"
    run = await agency.run_agent("a220")
    assert (run["error"]["type"], run["status"]) == ("tool_failed", "failed")
    assert "nested more than 100 deep" in run["error"]["message"]


async def test_an_input_that_no_run_can_hold_is_refused(agency: Agency) -> None:
    await agency.create_agent("a", SAY)
    arguments = {"app_id": agency.app_id, "name": "a"}
    refusal = await agency.catch_refusal("agents_run", agency.owner, **arguments, input={"x": nest_value(101)})
    assert (refusal.status, "nested at most 100 deep" in refusal.message) == (400, True), refusal
    assert (await agency.run_agent("a", input={"x": nest_value(90)}))["status"] == "completed"


async def test_rules_that_would_go_through_too_much_end_the_run(agency: Agency) -> None:
    spec = single_node_graph(tool_node("kv_get", key="a"))
    looks = {"or": [{"in": ["x", {"var": "input.rows"}]}] * 9}
    spec["edges"] = [{"from": "do", "to": "done", "when": looks}, {"from": "do", "to": "done"}]
    await agency.put_key("a", 1)
    await agency.create_agent("a", spec)
    run = await agency.run_agent("a", input={"rows": [1] * 50_000})
    assert (run["error"]["type"], "more than 250000" in run["error"]["message"]) == ("invalid_condition", True), run


async def test_a_run_that_a_former_version_paused_goes_on_once_somebody_decides(agency: Agency) -> None:
    await agency.create_agent("a", ASK)
    run = await agency.run_agent("a")
    owner = agency.owner
    # The form of the version of 22 November 2026: a person who signed in is named by their ids, a key by its own.
    caller = {"key_id": None, "account_id": owner.account_id, "organisation_id": owner.organisation_id}
    async with agency.harness.services.database.writing() as connection:
        await connection.execute(update(runs).where(runs.c.id == run["id"]).values(caller=caller))
    run = await agency.decide("a", run["id"])
    assert run["status"] == "completed", run


async def test_a_run_whose_graph_cannot_be_read_any_more_ends(agency: Agency) -> None:
    await agency.create_agent("a", ASK)
    run = await agency.run_agent("a")
    async with agency.harness.services.database.writing() as connection:
        spec = {**ASK, "limits": {"from a later version": 1}}
        await connection.execute(update(runs).where(runs.c.id == run["id"]).values(graph_spec=spec))
    run = await agency.decide("a", run["id"])
    assert (run["status"], run["error"]["type"]) == ("failed", "outdated")
