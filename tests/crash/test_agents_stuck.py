"""Runs that would not end: each process that makes them dies, or a call never answers."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from baobab.runtime.jobs.job_tables import jobs
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Toolset
from baobab.tools.core.types import AppId
from tests.cli.server_process import TIMEOUT_SECONDS
from tests.crash.crash_points import ManualWorker, SimulatedCrash, open_manual_worker
from tests.crash.machines import OWNER, Installation
from tests.crash.worker_pool import JobClient, WorkerPool, open_job_client, open_workers

ATTEMPTS = 5
"""That end at the same step before a run is given up."""
lethal = Toolset("lethal", "What ends whoever calls it.")


@lethal.tool(access=EVERYBODY, effect="read", limit=None)
async def perish(call: Call, app_id: AppId, after_proposals: int = 0) -> str:
    """End the process, when so many calls of the app wait for a person."""
    waiting = select(func.count()).where(approvals.c.status == "pending", approvals.c.app_id == app_id)
    waiting_count = -1
    while waiting_count < after_proposals:
        # A short read on files waits for nothing, and so lets nothing else run.
        await asyncio.sleep(0)
        async with call.services.database.reading() as connection:
            waiting_count = int(await connection.scalar(waiting) or 0)
    raise SimulatedCrash


def build_graph(*nodes: dict[str, Any]) -> dict[str, Any]:
    """One node after the other, and the end."""
    nodes_by_name = {f"n{index}": node for index, node in enumerate((*nodes, {"type": "end"}))}
    edges = [{"from": f"n{index}", "to": f"n{index + 1}"} for index in range(len(nodes))]
    refs = [ref for node in nodes for ref in (node.get("tool_ref"), *node.get("tools", ())) if ref]
    tools = {"builtin": sorted({ref["name"] for ref in refs})}
    return {"spec_version": 1, "entry": "n0", "nodes": nodes_by_name, "edges": edges, "tools": tools}


def tool_node(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool", "tool_ref": {"source": "builtin", "name": tool}, "args_template": arguments}


def model_node(*tools: str, prompt: str) -> dict[str, Any]:
    refs = [{"source": "builtin", "name": name} for name in tools]
    return {"type": "llm", "input_template": prompt, "tools": refs, "output_key": "answer"}


SIDE_BY_SIDE = model_node(
    "interrupt", "perish", prompt='/call interrupt {"reason": "Go on?"}\n/call perish {"after_proposals": 1}'
)


@pytest.fixture
async def manual_worker(tmp_path: Path) -> AsyncIterator[ManualWorker]:
    async with open_manual_worker(tmp_path / "data", lethal) as created_manual_worker:
        yield created_manual_worker


async def test_a_run_that_ends_each_process_which_makes_it_fails_once_and_leaves_nothing_behind(
    manual_worker: ManualWorker,
) -> None:
    await manual_worker.create_agent("lethal", build_graph(SIDE_BY_SIDE), max_concurrent_runs=1)
    run = await manual_worker.start_run("lethal")
    for _ in range(ATTEMPTS):
        await manual_worker.attempt_jobs(await manual_worker.list_unfinished())
        await manual_worker.read_run(run)
        assert run.status == "running"
    assert len(await list_pending(manual_worker)) == 1
    await manual_worker.attempt_jobs(await manual_worker.list_unfinished())
    await manual_worker.read_run(run)
    assert run.status == "failed"
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
    (failure,) = run.list_payloads("run_failed")
    assert failure["type"] == "worker_lost"
    assert run.events[-1]["type"] == "run_failed"
    record = (await manual_worker.get(run.path))["run"]
    assert record["error"]["type"] == "worker_lost"
    payloads = run.list_payloads("llm_token_usage")
    assert record["usage"]["output_tokens"] == sum(usage["output_tokens"] for usage in payloads) > 0
    assert await list_pending(manual_worker) == []
    assert await manual_worker.list_unfinished() == []
    # It does not count among those under way any more.
    await manual_worker.start_run("lethal")


async def test_a_run_above_one_that_ends_its_processes_fails_with_it(manual_worker: ManualWorker) -> None:
    await manual_worker.create_agent("lethal", build_graph(tool_node("perish")))
    await manual_worker.create_agent(
        "upper", build_graph({"type": "agent", "agent": "lethal", "input_template": {}, "output_key": "a"})
    )
    run = await manual_worker.start_run("upper")
    await manual_worker.finish_run(run)
    (failure,) = run.list_payloads("run_failed")
    assert failure["type"] == "worker_lost"
    assert failure["error"].startswith("lethal: ")


async def test_cancelling_a_run_that_ends_its_processes_cancels_it(manual_worker: ManualWorker) -> None:
    await manual_worker.create_agent("lethal", build_graph(tool_node("perish")))
    run = await manual_worker.start_run("lethal")
    for _ in range(ATTEMPTS):
        await manual_worker.attempt_jobs(await manual_worker.list_unfinished())
    await manual_worker.post(f"{run.path}/cancel", {}, 202)
    await manual_worker.attempt_jobs(await manual_worker.list_unfinished())
    await manual_worker.read_run(run)
    assert run.status == "cancelled"


async def test_a_run_whose_processes_end_at_another_step_each_time_goes_on(manual_worker: ManualWorker) -> None:
    await manual_worker.create_agent("long", build_graph(*[model_node(prompt="hi")] * 10))
    run, kill_count = await manual_worker.start_run("long"), 0

    async def kill() -> None:
        nonlocal kill_count
        kill_count += 1
        raise SimulatedCrash

    while not run.list_payloads("run_end"):
        # Its first transaction claims the run and begins a step, its second begins the next.
        manual_worker.crash_points.schedule(1, kill, after=True)
        await manual_worker.attempt_jobs(await manual_worker.list_unfinished())
        await manual_worker.read_run(run)
    assert run.status == "completed"
    assert kill_count > ATTEMPTS


async def test_a_run_that_ends_worker_after_worker_fails_and_another_beside_it_does_not(tmp_path: Path) -> None:
    here = Installation.on_backend(tmp_path)
    async with open_job_client(here) as job_client:
        response = await job_client.baobab.client.post("/init", json={"name": "lethal"}, headers=OWNER)
        app = response.json()["app_id"]
        paths: dict[str, str] = {}
        for tool in ("perish", "ponder"):
            await post_json(job_client, f"/v1/{app}/agents", {"name": tool, "graph_spec": build_graph(tool_node(tool))})
            started_run = await post_json(job_client, f"/v1/{app}/agents/{tool}/runs", {"input": {}})
            paths[tool] = f"/v1/{app}/agents/{tool}/runs/{started_run['run_id']}"
        with open_workers(here) as working:
            for _ in range(ATTEMPTS):
                await working.start_workers(1)
                await wait_for_death(working)
                await expire_leases(job_client, paths["perish"].rpartition("/")[2])
            await working.start_workers(1)
            run = await wait_for_end(job_client, paths["perish"])
            assert (run["status"], run["error"]["type"]) == ("failed", "worker_lost")
            assert len(await job_client.list_marks("perishing")) == ATTEMPTS
            # It died with the other as long as nobody had doubts, and goes on.
            await wait_for_mark(job_client, "pondering", working)
            assert (await get_json(job_client, paths["ponder"]))["run"]["status"] == "running"


async def test_a_cancel_asked_for_elsewhere_ends_a_call_that_nothing_else_would_end(tmp_path: Path) -> None:
    here = Installation.on_backend(tmp_path)
    async with open_job_client(here) as job_client:
        response = await job_client.baobab.client.post("/init", json={"name": "patient"}, headers=OWNER)
        app = response.json()["app_id"]
        await post_json(
            job_client, f"/v1/{app}/agents", {"name": "patient", "graph_spec": build_graph(tool_node("ponder"))}
        )
        with open_workers(here) as working:
            await working.start_workers(1)
            started_run = await post_json(job_client, f"/v1/{app}/agents/patient/runs", {"input": {}})
            path = f"/v1/{app}/agents/patient/runs/{started_run['run_id']}"
            await wait_for_mark(job_client, "pondering", working)
            asking = await post_json(job_client, f"{path}/cancel", {})
            assert asking["status"] == "cancelling"
            assert (await wait_for_end(job_client, path))["status"] == "cancelled"
            # The worker has given it up, and nobody has begun it anew.
            assert working.workers[0].is_running
            await job_client.wait_until_idle()
            assert len(await job_client.list_marks("pondering")) == 1


async def list_pending(manual_worker: ManualWorker) -> list[Any]:
    response = await manual_worker.baobab.client.get("/v1/approvals?status=pending", headers=manual_worker.baobab.owner)
    pending_approvals: list[Any] = response.json()["approvals"]
    return pending_approvals


async def post_json(client: JobClient, path: str, body: Any) -> Any:
    answer = await client.baobab.client.post(path, json=body, headers=OWNER)
    assert answer.status_code in (201, 202), answer.text
    return answer.json()


async def get_json(client: JobClient, path: str) -> Any:
    answer = await client.baobab.client.get(path, headers=OWNER)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def wait_for_end(client: JobClient, path: str) -> Any:
    """A run, when it has ended."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (run := (await get_json(client, path))["run"])["finished_at"] is None:
            await asyncio.sleep(0.05)
    return run


async def wait_for_death(pool: WorkerPool) -> None:
    (worker,) = pool.workers
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while worker.is_running:
            await asyncio.sleep(0.05)
    pool.kill_worker(worker)


async def wait_for_mark(client: JobClient, word: str, pool: WorkerPool) -> None:
    """When the newest worker has left a mark."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while pool.workers[-1].pid not in {mark.process for mark in await client.list_marks(word)}:
            await asyncio.sleep(0.05)


async def expire_leases(client: JobClient, first: str) -> None:
    """Whoever held jobs is gone: they are due at once, and those of one run before others."""
    conditions = (jobs.c.finished_at.is_(None), jobs.c.held_by.is_not(None))
    now = datetime.now(UTC)
    async with client.services.database.writing() as connection:
        await connection.execute(update(jobs).where(*conditions).values(due_at=now))
        hurry = jobs.c.id == f"run:{first}"
        await connection.execute(update(jobs).where(*conditions, hurry).values(due_at=now - timedelta(seconds=1)))
