"""Whichever transaction it is at which a worker dies: what an answer approves, and the app then does, is done once."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Caller, EndUser
from baobab.tools.core.context import RequestContext
from tests.crash.crash_points import ManualWorker, SimulatedCrash, open_manual_worker

LEAST = 5
"""Transactions at the least: until the question, until the write, and until the end."""
STAFF: dict[str, Any] = {"role": "staff"}
GRAPH: dict[str, Any] = {
    "spec_version": 1,
    "entry": "ask",
    "tools": {"builtin": ["interrupt", "kv_incr"]},
    "nodes": {
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "By how much?", "data": {"by": 1}},
            "approvers": STAFF,
            "output_key": "answer",
        },
        "count": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "kv_incr"},
            "args_template": {"key": "count:{{ input.number }}", "by": "{{ state.answer.data.by }}"},
            "run_as": "app",
            "approvers": STAFF,
        },
        "done": {"type": "end"},
    },
    "edges": [{"from": "ask", "to": "count"}, {"from": "count", "to": "done"}],
}


@pytest.fixture
async def manual_worker(tmp_path: Path) -> AsyncIterator[ManualWorker]:
    async with open_manual_worker(tmp_path / "data") as created_manual_worker:
        for name, ask in (
            ("announcing", {**GRAPH["nodes"]["ask"], "then": "count"}),
            ("asking", GRAPH["nodes"]["ask"]),
        ):
            graph = {**GRAPH, "nodes": {**GRAPH["nodes"], "ask": ask}}
            await created_manual_worker.create_agent(name, graph, visibility="authenticated")
        yield created_manual_worker


async def call_tool(manual_worker: ManualWorker, by: Caller, tool: str, **arguments: Any) -> Any:
    return await manual_worker.baobab.application.registry.call(tool, arguments, by, RequestContext("test", "r"))


async def approve_all(manual_worker: ManualWorker) -> None:
    staff = EndUser(manual_worker.app, "sam", "staff")
    for waiting in (await call_tool(manual_worker, staff, "approvals_list", status="pending"))["approvals"]:
        await call_tool(manual_worker, staff, "approvals_approve", approval_id=waiting["id"])


@pytest.mark.parametrize("agent", ["announcing", "asking"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_call_with_the_apps_right_is_made_once_wherever_a_worker_dies(
    manual_worker: ManualWorker, agent: str, *, after: bool
) -> None:
    async def kill() -> None:
        raise SimulatedCrash

    ada, number = EndUser(manual_worker.app, "ada"), 0
    while True:
        names = {"app_id": manual_worker.app, "name": agent}
        start = await call_tool(manual_worker, ada, "agents_run", **names, input={"number": number})
        manual_worker.crash_points.schedule(number, kill, after=after)
        status = "queued"
        while status not in ("completed", "failed", "timed_out"):
            await manual_worker.attempt_jobs(await manual_worker.list_unfinished())
            with contextlib.suppress(SimulatedCrash):
                await approve_all(manual_worker)
            run = await manual_worker.get(f"/agents/{agent}/runs/{start['run_id']}")
            status = run["run"]["status"]
        assert status == "completed", run
        assert (await manual_worker.get(f"/kv/count:{number}"))["value"] == 1
        if manual_worker.crash_points.is_planned:
            break
        number += 1
    assert number >= LEAST
