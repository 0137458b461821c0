"""What a run, its events and its error say of calls that were not made, of answers that are cut, and of refusals."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.providers import build_own_server
from tests.jobs import run_due_jobs
from tests.runtime.gateway.upstream import CannedAnswer, Upstream, start_upstream
from tests.tools.agents.conftest import Agency, build_graph

GET = {"source": "builtin", "name": "kv_get"}
ASK = {"source": "builtin", "name": "interrupt"}


@dataclass
class Lab:
    """A provider whose model `lab/m` answers as a test says."""

    agency: Agency
    fake: Upstream

    def answer(self, behaviour: str) -> None:
        model = Model(
            id="lab/m",
            name=behaviour,
            modality="chat",
            price=Price(prompt=10**12, completion=10**12),
            context_window=8192,
            max_output=64,
            litellm=f"lab/{behaviour}",
            provider="lab",
            features=frozenset(("streaming", "tools")),
        )
        gateway = self.agency.harness.services.part(Gateway)
        gateway.add_provider(build_own_server("lab", f"{self.fake.url}/v1", "key"), [model])

    def say(self, reason: str, **message: Any) -> None:
        """Answers once with this message and this finish reason; after results of calls, ordinarily."""
        choices = [
            {"index": 0, "delta": {"role": "assistant", **message}, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": reason},
        ]
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        events = [json.dumps({**chunk, "choices": [choice]}) for choice in choices]
        body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
        self.fake.canned_answers["it"] = CannedAnswer(body, headers={"content-type": "text/event-stream"})
        self.answer("calls:it")

    async def run(self, **node: Any) -> dict[str, Any]:
        """Runs an agent of one model; the run when it rests."""
        think = {"type": "llm", "input_template": "Hello.", "output_key": "said", "tools": [GET, ASK], **node}
        nodes = {"think": think, "done": {"type": "end", "output_template": "{{ state.said }}"}}
        graph = build_graph(nodes, ("think", "done"), tools={"builtin": ["kv_get", "interrupt"]})
        await self.agency.create_agent("a", graph, default_model="lab/m")
        return await self.agency.run_agent("a")


@pytest.fixture
async def lab(agency: Agency) -> AsyncIterator[Lab]:
    async with start_upstream() as fake:
        yield Lab(agency, fake)


def make_call(name: str, arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("name", "arguments", "code", "source"),
    [
        ("kv_gett", '{"key": "k"}', "UNKNOWN_TOOL", "unknown"),
        ("kv_get", "[1]", "INVALID_ARGUMENTS", "builtin"),
        ("kv_get", '{"key": "\\u0000"}', "INVALID_ARGUMENTS", "builtin"),
        ("kv_get", "nonsense \x00", "INVALID_ARGUMENTS", "builtin"),
    ],
)
async def test_a_call_that_cannot_be_made_has_events_like_any_other(
    lab: Lab, name: str, arguments: str, code: str, source: str
) -> None:
    lab.say("tool_calls", tool_calls=[make_call(name, arguments)])
    run = await lab.run()
    assert run["status"] == "completed", run
    (start,) = await lab.agency.list_events("a", run["id"], "tool_call_start")
    (end,) = await lab.agency.list_events("a", run["id"], "tool_call_end")
    of_call = {"tool_source": source, "tool_name": name, "call_id": "1.0"}
    assert start["payload"] == {**of_call, "args": arguments.replace("\x00", "\ufffd")}
    assert end["payload"].items() >= {**of_call, "status": "error"}.items()
    assert end["payload"]["error"]["code"] == code


async def test_a_model_is_told_that_its_call_was_cut_and_not_that_it_is_wrong_json(lab: Lab) -> None:
    lab.say("length", tool_calls=[make_call("kv_get", '{"key": "a')])
    run = await lab.run()
    (end,) = await lab.agency.list_events("a", run["id"], "tool_call_end")
    assert "finish_reason: length" in end["payload"]["error"]["message"]
    result = lab.fake.requests[-1].json["messages"][-1]
    assert (result["role"], "finish_reason: length" in result["content"]) == ("tool", True)


@pytest.mark.parametrize(
    ("reason", "message", "mark"),
    [
        ("stop", {"content": "All of it."}, None),
        ("length", {"content": "Half of"}, "length"),
        ("content_filter", {"content": "Half of"}, "content_filter"),
        ("stop", {"refusal": "I will not."}, "refusal"),
        ("tool_calls", {"content": ""}, "call_lost"),
    ],
)
async def test_a_run_whose_model_was_cut_off_is_marked(
    lab: Lab, reason: str, message: dict[str, str], mark: str | None
) -> None:
    lab.say(reason, **message)
    run = await lab.run()
    assert (run["status"], run["output"]) == ("completed", next(iter(message.values()))), run
    incomplete = None if mark is None else {"reason": mark, "node_id": "think", "step": 1}
    assert run["incomplete"] == incomplete
    (end,) = await lab.agency.list_events("a", run["id"], "run_end")
    assert end["payload"].get("incomplete") == incomplete
    told_reason = "refusal" if mark == "refusal" else reason
    (usage,) = await lab.agency.list_events("a", run["id"], "llm_token_usage")
    assert usage["payload"]["finish_reason"] == told_reason
    of_run = {"app_id": lab.agency.app_id, "name": "a", "id": run["id"]}
    calls = await lab.agency.harness.call("agents_runs_model_calls", lab.agency.owner, **of_run)
    assert calls["model_calls"][0]["finish_reason"] == told_reason


async def test_the_mark_of_a_child_run_is_on_its_parent(lab: Lab) -> None:
    lab.say("length", content="Half of")
    await lab.run()
    call = {"type": "agent", "agent": "a", "input_template": {}, "output_key": "below"}
    nodes = {"call": call, "done": {"type": "end", "output_template": "{{ state.below }}"}}
    await lab.agency.create_agent("parent", build_graph(nodes, ("call", "done")))
    run_id = await lab.agency.start_run("parent")
    run = await lab.agency.wait_for_end("parent", run_id)
    assert run["incomplete"] == {"reason": "length", "node_id": "call", "step": 1}


async def test_json_that_was_cut_says_so(lab: Lab) -> None:
    lab.say("length", content='{"amount": ')
    run = await lab.run(output_schema={"type": "object"}, tools=[])
    assert run["error"]["type"] == "invalid_output"
    assert "It was cut at the limit of tokens" in run["error"]["message"]


@pytest.mark.parametrize(("retry", "asked"), [({}, 3), ({"attempts": 1}, 1), ({"attempts": 2}, 2)])
async def test_a_provider_that_fails_is_asked_again_as_often_as_the_node_says(
    lab: Lab, retry: dict[str, int], asked: int
) -> None:
    lab.answer("500")
    run = await lab.run(retry=retry)
    assert (run["status"], run["error"]["type"]) == ("failed", "model_failed"), run
    retries = [event["payload"] for event in await lab.agency.list_events("a", run["id"], "model_retry")]
    assert [(event["attempt"], event["wait_seconds"]) for event in retries] == [(1, 1), (2, 2)][: asked - 1]
    assert all(event["error"]["code"] == "upstream_error" for event in retries)


async def test_a_long_wait_for_a_provider_holds_nothing_and_the_run_goes_on(lab: Lab) -> None:
    lab.answer("500")
    think = {
        "type": "llm",
        "input_template": "Hello.",
        "output_key": "said",
        "retry": {"attempts": 3, "wait_seconds": 60},
    }
    nodes = {"think": think, "done": {"type": "end", "output_template": "{{ state.said }}"}}
    spec = {**build_graph(nodes, ("think", "done")), "limits": {"timeout_seconds": 3600}}
    await lab.agency.create_agent("a", spec, default_model="lab/m")
    run_id = await lab.agency.start_run("a")
    for expected_count in (1, 2):
        await run_due_jobs(lab.agency.harness)
        assert len(await lab.agency.list_events("a", run_id, "model_retry")) == expected_count
        lab.agency.harness.clock.advance(200)
    lab.answer("ok")
    run = await lab.agency.wait_for_end("a", run_id)
    assert run["status"] == "completed", run


async def test_the_error_of_a_run_says_what_a_direct_refusal_says(lab: Lab) -> None:
    lab.answer("ok")
    think = {"type": "llm", "input_template": "Hello.", "output_key": "said"}
    nodes = {"think": think, "done": {"type": "end", "output_template": "{{ state.said }}"}}
    graph = build_graph(nodes, ("think", "done"))
    settings = {"visibility": "authenticated", "daily_budget_usd": 0.01}
    await lab.agency.create_agent("a", graph, default_model="lab/m", **settings)
    run = await lab.agency.run_agent("a", lab.agency.end_user("ada"))
    error = run["error"]
    assert (error["type"], error["code"]) == ("daily_budget_usd", "BUDGET_EXHAUSTED")
    assert "daily_budget_usd" in error["remediation"]
    assert error["details"]["required_usd"] > 0.01
    assert {"limit_usd", "spent_usd", "resets_at"} <= error["details"]["budget"].keys()
    (failure,) = await lab.agency.list_events("a", run["id"], "run_failed")
    assert failure["payload"]["details"] == error["details"]
    # The app's figures are not for its users.
    of_run = {"app_id": lab.agency.app_id, "name": "a", "id": run["id"]}
    shown_run = await lab.agency.harness.call("agents_runs_get", lab.agency.end_user("ada"), **of_run)
    assert set(shown_run["run"]["error"]) == {"message", "type"}
    events = await lab.agency.harness.call("agents_runs_events_list", lab.agency.end_user("ada"), **of_run)
    assert set(events["events"][-1]["payload"]) == {"error", "type"}


async def test_the_answer_to_a_question_is_not_told_as_a_change_of_it(lab: Lab) -> None:
    lab.say("tool_calls", tool_calls=[make_call("interrupt", '{"reason": "How much?"}')])
    run = await lab.run()
    run = await lab.agency.decide("a", run["id"], data={"amount": 5})
    assert run["status"] == "completed", run
    result = json.loads(lab.fake.requests[-1].json["messages"][-1]["content"])
    assert result == {"approved": True, "reason": "How much?", "data": {"amount": 5}}


async def test_a_write_that_was_approved_is_told_as_done(agency: Agency) -> None:
    await agency.create_agent(
        "a",
        build_graph(
            {
                "think": {
                    "type": "llm",
                    "input_template": '/call kv_put {"key": "k", "value": 1}',
                    "output_key": "said",
                    "tools": [{"source": "builtin", "name": "kv_put"}],
                },
                "done": {"type": "end", "output_template": "{{ state.said }}"},
            },
            ("think", "done"),
            tools={"builtin": ["kv_put"]},
        ),
    )
    run = await agency.run_agent("a")
    run = await agency.decide("a", run["id"])
    of_run = {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    calls = await agency.harness.call("agents_runs_model_calls", agency.owner, **of_run)
    assert calls["model_calls"][-1]["prompt"][-1] == {"role": "tool", "content": "Done."}
