"""Runs that would not end: each process that makes them dies, or a call never answers."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from baobab.runtime.job_tables import jobs
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Toolset
from baobab.tools.core.types import AppId
from tests.cli.server_process import PATIENCE
from tests.crash.crew import Crew, Desk, crew, desk
from tests.crash.machines import OWNER, Installation
from tests.crash.moments import Hand, Killed, hand

ATTEMPTS = 5
"""That end at the same step before a run is given up."""
lethal = Toolset("lethal", "What ends whoever calls it.")


@lethal.tool(access=EVERYBODY, effect="read", limit=None)
async def perish(call: Call, app_id: AppId, after_proposals: int = 0) -> str:
    """End the process, when so many calls of the app wait for a person."""
    waiting = select(func.count()).where(approvals.c.status == "pending", approvals.c.app_id == app_id)
    found = -1
    while found < after_proposals:
        async with call.services.database.reading() as connection:
            found = int(await connection.scalar(waiting) or 0)
    raise Killed


def graph(*nodes: dict[str, Any]) -> dict[str, Any]:
    """One node after the other, and the end."""
    named = {f"n{index}": node for index, node in enumerate((*nodes, {"type": "end"}))}
    edges = [{"from": f"n{index}", "to": f"n{index + 1}"} for index in range(len(nodes))]
    refs = [ref for node in nodes for ref in (node.get("tool_ref"), *node.get("tools", ())) if ref]
    tools = {"builtin": sorted({ref["name"] for ref in refs})}
    return {"spec_version": 1, "entry": "n0", "nodes": named, "edges": edges, "tools": tools}


def using(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool", "tool_ref": {"source": "builtin", "name": tool}, "args_template": arguments}


def asking(*tools: str, prompt: str) -> dict[str, Any]:
    refs = [{"source": "builtin", "name": name} for name in tools]
    return {"type": "llm", "input_template": prompt, "tools": refs, "output_key": "answer"}


SIDE_BY_SIDE = asking(
    "interrupt", "perish", prompt='/call interrupt {"reason": "Go on?"}\n/call perish {"after_proposals": 1}'
)


@pytest.fixture
async def at_hand(tmp_path: Path) -> AsyncIterator[Hand]:
    async with hand(tmp_path / "data", lethal) as made:
        yield made


async def test_a_run_that_ends_each_process_which_makes_it_fails_once_and_leaves_nothing_behind(at_hand: Hand) -> None:
    await at_hand.agent("lethal", graph(SIDE_BY_SIDE), max_concurrent_runs=1)
    run = await at_hand.start("lethal")
    for _ in range(ATTEMPTS):
        await at_hand.make(await at_hand.unmade())
        await at_hand.read(run)
        assert run.status == "running"
    assert len(await waiting(at_hand)) == 1
    await at_hand.make(await at_hand.unmade())
    await at_hand.read(run)
    assert run.status == "failed"
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
    (failed,) = run.told("run_failed")
    assert failed["type"] == "worker_lost"
    assert run.events[-1]["type"] == "run_failed"
    record = (await at_hand.get(run.path))["run"]
    assert record["error"]["type"] == "worker_lost"
    used = run.told("llm_token_usage")
    assert record["usage"]["output_tokens"] == sum(usage["output_tokens"] for usage in used) > 0
    assert await waiting(at_hand) == []
    assert await at_hand.unmade() == []
    # It does not count among those under way any more.
    await at_hand.start("lethal")


async def test_a_run_above_one_that_ends_its_processes_fails_with_it(at_hand: Hand) -> None:
    await at_hand.agent("lethal", graph(using("perish")))
    await at_hand.agent("upper", graph({"type": "agent", "agent": "lethal", "input_template": {}, "output_key": "a"}))
    run = await at_hand.start("upper")
    await at_hand.finish(run)
    (failed,) = run.told("run_failed")
    assert failed["type"] == "worker_lost"
    assert failed["error"].startswith("lethal: ")


async def test_cancelling_a_run_that_ends_its_processes_cancels_it(at_hand: Hand) -> None:
    await at_hand.agent("lethal", graph(using("perish")))
    run = await at_hand.start("lethal")
    for _ in range(ATTEMPTS):
        await at_hand.make(await at_hand.unmade())
    await at_hand.post(f"{run.path}/cancel", {}, 202)
    await at_hand.make(await at_hand.unmade())
    await at_hand.read(run)
    assert run.status == "cancelled"


async def test_a_run_whose_processes_end_at_another_step_each_time_goes_on(at_hand: Hand) -> None:
    await at_hand.agent("long", graph(*[using("kv_get", key="seed")] * 10))
    run, killed = await at_hand.start("long"), 0

    async def kill() -> None:
        nonlocal killed
        killed += 1
        raise Killed

    while not run.told("run_end"):
        # Its first transaction takes the run, its second tells of a step.
        at_hand.moments.plan(1, kill, after=True)
        await at_hand.make(await at_hand.unmade())
        await at_hand.read(run)
    assert run.status == "completed"
    assert killed > ATTEMPTS


async def test_a_run_that_ends_worker_after_worker_fails_and_another_beside_it_does_not(tmp_path: Path) -> None:
    here = Installation.of_the_column(tmp_path)
    async with desk(here) as asked:
        told = await asked.baobab.client.post("/init", json={"name": "lethal"}, headers=OWNER)
        app = told.json()["app_id"]
        paths: dict[str, str] = {}
        for tool in ("perish", "ponder"):
            await posted(asked, f"/v1/{app}/agents", {"name": tool, "graph_spec": graph(using(tool))})
            started = await posted(asked, f"/v1/{app}/agents/{tool}/runs", {"input": {}})
            paths[tool] = f"/v1/{app}/agents/{tool}/runs/{started['run_id']}"
        with crew(here) as working:
            for _ in range(ATTEMPTS):
                await working.hire(1)
                await died(working)
                await no_lease(asked, paths["perish"].rpartition("/")[2])
            await working.hire(1)
            failed = await ended(asked, paths["perish"])
            assert (failed["status"], failed["error"]["type"]) == ("failed", "worker_lost")
            assert len(await asked.marks("perishing")) == ATTEMPTS
            # It died with the other as long as nobody had doubts, and goes on.
            await begun(asked, "pondering", working)
            assert (await got(asked, paths["ponder"]))["run"]["status"] == "running"


async def test_a_cancel_asked_for_elsewhere_ends_a_call_that_nothing_else_would_end(tmp_path: Path) -> None:
    here = Installation.of_the_column(tmp_path)
    async with desk(here) as asked:
        told = await asked.baobab.client.post("/init", json={"name": "patient"}, headers=OWNER)
        app = told.json()["app_id"]
        await posted(asked, f"/v1/{app}/agents", {"name": "patient", "graph_spec": graph(using("ponder"))})
        with crew(here) as working:
            await working.hire(1)
            started = await posted(asked, f"/v1/{app}/agents/patient/runs", {"input": {}})
            path = f"/v1/{app}/agents/patient/runs/{started['run_id']}"
            await begun(asked, "pondering", working)
            asking = await posted(asked, f"{path}/cancel", {})
            assert asking["status"] == "cancelling"
            assert (await ended(asked, path))["status"] == "cancelled"
            # The worker has given it up, and nobody has begun it anew.
            assert working.workers[0].runs
            await asked.settled()
            assert len(await asked.marks("pondering")) == 1


async def waiting(at_hand: Hand) -> list[Any]:
    listed = await at_hand.baobab.client.get("/v1/approvals?status=pending", headers=at_hand.baobab.owner)
    found: list[Any] = listed.json()["approvals"]
    return found


async def posted(asked: Desk, path: str, body: Any) -> Any:
    answer = await asked.baobab.client.post(path, json=body, headers=OWNER)
    assert answer.status_code in (201, 202), answer.text
    return answer.json()


async def got(asked: Desk, path: str) -> Any:
    answer = await asked.baobab.client.get(path, headers=OWNER)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ended(asked: Desk, path: str) -> Any:
    """A run, when it has ended."""
    async with asyncio.timeout(PATIENCE):
        while (run := (await got(asked, path))["run"])["finished_at"] is None:
            await asyncio.sleep(0.05)
    return run


async def died(working: Crew) -> None:
    (worker,) = working.workers
    async with asyncio.timeout(PATIENCE):
        while worker.runs:
            await asyncio.sleep(0.05)
    working.lose(worker)


async def begun(asked: Desk, word: str, working: Crew) -> None:
    """When the newest worker has left a mark."""
    async with asyncio.timeout(PATIENCE):
        while working.workers[-1].pid not in {mark.process for mark in await asked.marks(word)}:
            await asyncio.sleep(0.05)


async def no_lease(asked: Desk, first: str) -> None:
    """Whoever held jobs is gone: they are due at once, and those of one run before others."""
    held = (jobs.c.finished_at.is_(None), jobs.c.held_by.is_not(None))
    now = datetime.now(UTC)
    async with asked.services.database.writing() as connection:
        await connection.execute(update(jobs).where(*held).values(due_at=now))
        hurry = jobs.c.id == f"run:{first}"
        await connection.execute(update(jobs).where(*held, hurry).values(due_at=now - timedelta(seconds=1)))
