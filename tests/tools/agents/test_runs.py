"""Runs from their start to their end."""

import asyncio
import gc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from baobab.runtime.agents import event_log
from baobab.runtime.agents.run_watcher import RunWatcher
from baobab.runtime.agents.tables import runs
from tests.crash.crash_points import open_manual_worker
from tests.jobs import jobs
from tests.statement_count import count_statements
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_subagents import SAY

READ: dict[str, Any] = {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_get"}, "output_key": "found"}
KV = {"tools": {"builtin": ["kv_get", "kv_put", "interrupt"]}}


def list_types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_a_run_calls_a_model_and_ends_with_its_output(agency: Agency) -> None:
    spec = build_graph(
        {
            "greet": {"type": "llm", "input_template": "Greet {{ input.name }}.", "output_key": "greeting"},
            "done": {"type": "end", "output_template": {"said": "{{ state.greeting }}"}},
        },
        ("greet", "done"),
    )
    await agency.create_agent("greeter", spec)
    run = await agency.run_agent("greeter", input={"name": "Ada"})
    assert run["status"] == "completed", run
    assert "Ada" in run["output"]["said"]
    assert run["usage"]["output_tokens"] > 0
    events = await agency.list_events("greeter", run["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert list_types(events) == [
        "run_start",
        "node_start",
        "llm_token_usage",
        "node_end",
        "node_start",
        "node_end",
        "run_end",
    ]


async def test_a_graph_reads_by_a_tool(agency: Agency) -> None:
    await agency.put_key("note", {"text": "hello"})
    read = {**READ, "args_template": {"key": "{{ input.key }}"}}
    end = {"type": "end", "output_template": "{{ state.found.value.text }}!"}
    await agency.create_agent("reader", build_graph({"read": read, "done": end}, ("read", "done"), **KV))
    run = await agency.run_agent("reader", input={"key": "note"})
    assert run["output"] == "hello!", run
    assert run["tainted"] is True


async def test_a_write_waits_for_a_person_and_is_done_once(agency: Agency) -> None:
    write = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "kv_put"},
        "args_template": {"key": "note", "value": "{{ input.value }}"},
    }
    spec = build_graph({"write": write, "done": {"type": "end", "output_template": "ok"}}, ("write", "done"), **KV)
    await agency.create_agent("writer", spec)
    run = await agency.run_agent("writer", input={"value": [1, 2]})
    assert run["status"] == "paused", run
    assert await agency.get_key("note") is None
    payload = (await agency.list_events("writer", run["id"], "run_paused"))[0]["payload"]
    assert payload["tool_name"] == "kv_put"
    assert payload["args"] == {"key": "note", "value": [1, 2]}
    run = await agency.decide("writer", run["id"])
    assert run["status"] == "completed", run
    assert await agency.get_key("note") == "[1,2]"


async def test_a_refused_write_ends_the_run(agency: Agency) -> None:
    ask = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "interrupt"},
        "args_template": {"reason": "Go on?"},
    }
    spec = build_graph({"ask": ask, "done": {"type": "end", "output_template": "ok"}}, ("ask", "done"), **KV)
    await agency.create_agent("asker", spec)
    run = await agency.run_agent("asker")
    run = await agency.decide("asker", run["id"], approves=False, reason="No.")
    assert run["status"] == "failed"
    assert run["error"] == {"message": "No.", "type": "approval_denied"}
    assert (await agency.list_events("asker", run["id"], "run_failed"))[0]["payload"]["reason"] == "approval_denied"


async def test_a_read_that_the_graph_narrows_waits_for_a_person(agency: Agency) -> None:
    await agency.put_key("note", "hello")
    ref = {**READ["tool_ref"], "mode_override": "read_write"}
    read = {**READ, "tool_ref": ref, "args_template": {"key": "note"}}
    end = {"type": "end", "output_template": "{{ state.found.value }}"}
    await agency.create_agent("reader", build_graph({"read": read, "done": end}, ("read", "done"), **KV))
    run = await agency.run_agent("reader")
    assert run["status"] == "paused", run["error"]
    (pause_event,) = await agency.list_events("reader", run["id"], "run_paused")
    flat = {name: value for name, value in pause_event["payload"].items() if name != "payload"}
    assert pause_event["payload"]["payload"] == flat
    run = await agency.decide("reader", run["id"])
    assert (run["status"], run["output"]) == ("completed", "hello"), run
    (end_event,) = await agency.list_events("reader", run["id"], "tool_call_end")
    assert end_event["payload"]["duration_ms"] >= 0


async def test_a_run_that_is_cancelled_at_any_moment_of_a_step_leaves_nothing_half_begun(agency: Agency) -> None:
    """Nothing that LangGraph was about to do is left over: that would be told as a warning, which fails a test."""
    read = {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_get"}, "args_template": {"key": "a"}}
    nodes: dict[str, Any] = {f"n{index}": read for index in range(8)} | {"done": {"type": "end", "output_template": 1}}
    names = list(nodes)
    await agency.put_key("a", "first")
    await agency.create_agent("reader", build_graph(nodes, *pairwise(names), tools={"builtin": ["kv_get"]}))
    watch = agency.harness.services.of(RunWatcher)
    cancelled_count = 0
    for ticks in range(40):
        run_id = await agency.start_run("reader")
        while run_id not in watch._cancels:
            await asyncio.sleep(0)
        for _ in range(ticks):
            await asyncio.sleep(0)
        for cancel in watch._cancels.get(run_id, ()):
            cancel()
        cancelled_count += (await agency.wait_for_run("reader", run_id))["status"] == "cancelled"
        agency.harness.clock.advance(1)
    gc.collect()
    assert cancelled_count


@pytest.mark.parametrize("has_begun", [False, True], ids=["before it began", "under way"])
async def test_a_run_whose_job_was_given_up_ends(agency: Agency, has_begun: bool) -> None:
    ask = {"type": "tool", "tool_ref": {"source": "builtin", "name": "interrupt"}, "args_template": {"reason": "?"}}
    spec = build_graph({"ask": ask, "done": {"type": "end", "output_template": 1}}, ("ask", "done"), **KV)
    await agency.create_agent("asker", spec)
    run = await agency.run_agent("asker")
    database, job_id = agency.harness.services.database, f"run:{run['id']}"
    # As it stands when a thousand attempts have ended with their processes.
    values = {"status": "running", "job_id": job_id} if has_begun else {"status": "queued", "job_id": None}
    async with database.writing() as connection:
        await connection.execute(update(jobs).where(jobs.c.id == job_id).values(error="Each attempt ended."))
        await connection.execute(update(runs).where(runs.c.id == run["id"]).values(**values))
    await agency.run_maintenance()
    run = await agency.wait_for_run("asker", run["id"])
    assert (run["status"], run["error"]["type"]) == ("failed", "worker_lost")
    assert (await agency.list_events("asker", run["id"]))[-1]["type"] == "run_failed"
    waiting = await agency.harness.call("approvals_list", agency.owner, status="pending")
    assert waiting["approvals"] == []


@pytest.mark.parametrize(
    "condition", ["idempotency_key = 'k'", "idempotency_key IS NULL AND created_at > '2026-01-01'"]
)
async def test_the_run_that_a_start_repeats_is_found_among_any_number(agency: Agency, condition: str) -> None:
    query = f"SELECT id FROM agent_runs WHERE agent_id = 'a' AND subject = 's' AND {condition}"  # noqa: S608 - our texts
    query += " ORDER BY created_at DESC LIMIT 1"
    index = "agent_id_subject" if "NULL" in condition else "agent_id_idempotency_key"
    database = agency.harness.services.database
    async with database.reading() as connection:
        if database.dialect == "postgresql":
            # With few rows it would read the whole table in any case.
            await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            await connection.exec_driver_sql("SET LOCAL enable_sort = off")
        explain = "EXPLAIN" if database.dialect == "postgresql" else "EXPLAIN QUERY PLAN"
        plan = (await connection.exec_driver_sql(f"{explain} {query}")).all()
    assert any(f"ix_agent_runs_{index}" in row[-1] for row in plan), plan


async def test_a_run_of_two_nodes_takes_few_statements_and_three_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine would write what a run holds back before it has ended.
    monkeypatch.setattr(event_log, "_LEAST_BETWEEN_SECONDS", 60.0)
    read = {**READ, "args_template": {"key": "seed"}}
    graph = build_graph({"read": read, "done": {"type": "end"}}, ("read", "done"), **KV)
    async with open_manual_worker(tmp_path) as worker:
        await worker.create_agent("reader", graph)
        # Keys and accounts are in memory after the first run.
        for _ in range(2):
            with count_statements() as count:
                run = await worker.start_run("reader")
                await worker.attempt_jobs([f"run:{run.id}"])
            await worker.read_run(run)
            assert run.status == "completed"
        if worker.services.database.dialect == "postgresql":
            # Start, claim and end; the claim takes two statements here, and one where a runner makes it.
            assert count.commits == 3, count.texts
            assert 10 < len(count.texts) <= 19, count.texts
            inserts = [text for text in count.texts if "INTO agent_events" in text]
            assert len(inserts) == 1, "events of a transition are one insert"


@pytest.mark.parametrize(("visibility", "window_seconds"), [("private", 60), ("authenticated", 0), ("public", 0)])
async def test_only_private_agents_have_a_dedupe_window_of_their_own_accord(
    agency: Agency, visibility: str, window_seconds: int
) -> None:
    settings: dict[str, Any] = {"visibility": visibility, "safety_acknowledged": True, "graph_spec": SAY}
    arguments: dict[str, Any] = {"app_id": agency.app_id, "name": "chat"}
    result = await agency.harness.call("agents_create", agency.owner, **arguments, **settings)
    assert result["agent"]["dedupe_window_seconds"] == window_seconds
    caller = agency.owner if visibility == "private" else agency.end_user("ada")
    first = await agency.harness.call("agents_run", caller, **arguments, input={"name": "one"})
    second = {**arguments, "input": {"name": "two"}}
    if window_seconds:
        assert (await agency.catch_refusal("agents_run", caller, **second)).code == "conflict"
    else:
        assert (await agency.harness.call("agents_run", caller, **second))["run_id"] != first["run_id"]
    # An agent that says otherwise keeps to it, and null is the default again.
    for value, shown_seconds in ((5, 5), (None, window_seconds)):
        changed_agent = await agency.harness.call(
            "agents_update", agency.owner, **arguments, dedupe_window_seconds=value
        )
        assert changed_agent["agent"]["dedupe_window_seconds"] == shown_seconds
