"""Runs of an app that is moved to another region, or deleted, while they are under way."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from baobab.runtime.agents.tables import (
    agents,
    checkpoints,
    counts,
    events,
    messages,
    pieces,
    runs,
    stream_tokens,
    threads,
    writes,
)
from baobab.storage.kv.engine import Quota
from baobab.storage.sql.database import Database
from baobab.tools.approvals.executor import JOB
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.app_freezes import app_freezes
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Toolset
from baobab.tools.core.types import AppId
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.servers import TIMEOUT_SECONDS
from tests.tools.agents.conftest import build_graph

EU = "eu-west-1"
ROWS = [agents, runs, events, checkpoints, writes, counts, stream_tokens, threads, messages, pieces, app_freezes]


@dataclass
class Gate:
    """A tool that answers when it is let."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    calls: int = 0

    @property
    def toolset(self) -> Toolset:
        gates = Toolset("gates", "A tool that answers when it is let.", base="/v1/{app_id}/gates")

        @gates.tool("GET /one", access=EVERYBODY, effect="read")
        async def gates_one(call: Call, app_id: AppId) -> dict[str, bool]:
            """Wait."""
            self.calls += 1
            await self.open.wait()
            return {"open": True}

        return gates


@dataclass
class Place:
    """An installation of two regions, with an app in the first that has two agents: one waits, the other asks."""

    baobab: Baobab
    clock: FixedClock
    gate: Gate
    app: str = ""

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.baobab.client.request(method, path, json=body, headers=self.baobab.owner)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def run_due_jobs(self, seconds: float = 0) -> None:
        """So much later, when all that is due has been done."""
        self.clock.advance(seconds)
        for database in self.databases:
            await jobs.run_due_jobs(self.baobab.application, database)

    async def run_maintenance(self) -> None:
        await jobs.run_job(self.baobab.application, "agents_tend")
        await self.run_due_jobs()

    @property
    def databases(self) -> list[Database]:
        return [stores.database for stores in self.baobab.application.services.regions.values()]

    async def create_agent(self, name: str, tool: str, arguments: dict[str, Any]) -> None:
        node = {"type": "tool", "tool_ref": {"source": "builtin", "name": tool}, "args_template": arguments}
        spec = build_graph({"do": node, "done": {"type": "end"}}, ("do", "done"), tools={"builtin": [tool]})
        body = {"name": name, "graph_spec": spec, "dedupe_window_seconds": 0}
        await self.ask("POST", f"/v1/{self.app}/agents", body, 201)

    async def start_run(self, agent: str) -> str:
        """The path of a new run."""
        answer = await self.ask("POST", f"/v1/{self.app}/agents/{agent}/runs", {"input": {}}, 201)
        return f"/v1/{self.app}/agents/{agent}/runs/{answer['run_id']}"

    async def get_status(self, run: str) -> str:
        status: str = (await self.ask("GET", run))["run"]["status"]
        return status

    async def wait_for_status(self, run: str, status: str) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await self.get_status(run) != status:
                await asyncio.sleep(0.01)

    async def approve_run(self, run: str) -> None:
        events = (await self.ask("GET", f"{run}/events.json"))["events"]
        token = next(event["payload"]["approval_token"] for event in events if event["type"] == "run_paused")
        await self.ask("POST", f"{run}/resume", {"approval_token": token, "approved": True})

    async def start_move(self, to: str) -> str:
        answer = await self.ask("POST", f"/v1/apps/{self.app}/move", {"dest_region": to}, 202)
        move = f"/v1/apps/{self.app}/migrations/{answer['migration_id']}"
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (await self.ask("GET", move))["current_step"] != "unblocking_writes":
                await asyncio.sleep(0.01)
        return move

    async def finish_move(self, move: str) -> None:
        for _ in range(20):
            await self.run_due_jobs(5)
            answer = await self.ask("GET", move)
            if answer["completed_at"] is not None:
                assert answer["current_step"] == "completed", answer
                return
        raise AssertionError(answer)

    async def count_rows(self) -> dict[str, int]:
        """How many rows of agents there are, in all regions together."""
        row_counts = dict.fromkeys((table.name for table in ROWS), 0)
        for database in self.databases:
            async with database.reading() as connection:
                for table in ROWS:
                    row_counts[table.name] += await connection.scalar(select(func.count()).select_from(table)) or 0
        return {name: count for name, count in row_counts.items() if count}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    (tmp_path / "regions.toml").write_text(f"[{EU}]\n")
    clock, gate = FixedClock(), Gate()
    settings = {"BAOBAB_REGIONS": str(tmp_path / "regions.toml")}
    async with open_installation(tmp_path / "data", settings, clock=clock, further=[gate.toolset]) as baobab:
        created_place = Place(baobab, clock, gate)
        created_place.app = await baobab.create_app()
        await created_place.create_agent("waiter", "gates_one", {})
        await created_place.create_agent("asker", "kv_incr", {"key": "n"})
        yield created_place
        gate.open.set()


async def test_runs_go_on_where_the_app_has_gone_to_and_those_that_wait_can_be_decided_there(place: Place) -> None:
    waiting_run, asking_run, decided_run = (
        await place.start_run("waiter"),
        await place.start_run("asker"),
        await place.start_run("asker"),
    )
    await place.wait_for_status(waiting_run, "running")
    for run in (asking_run, decided_run):
        await place.wait_for_status(run, "paused")
    move = await place.start_move(EU)
    # While it moves runs can be read, and decided about; nothing is begun and nothing goes on.
    assert await place.get_status(waiting_run) == "running"
    refusal = await place.ask("POST", f"/v1/{place.app}/agents/asker/runs", {"input": {}}, 503)
    assert refusal["error"] == "app_migrating"
    await place.ask("POST", f"{asking_run}/cancel", None, 503)
    await place.approve_run(decided_run)
    place.gate.open.set()
    assert await place.get_status(waiting_run) == "running"
    await place.finish_move(move)
    await place.run_due_jobs()
    assert [await place.get_status(run) for run in (waiting_run, asking_run)] == ["completed", "paused"]
    assert place.gate.calls == 2
    await place.run_due_jobs(10)
    await place.wait_for_status(decided_run, "completed")
    await place.approve_run(asking_run)
    await place.wait_for_status(asking_run, "completed")
    assert (await place.ask("GET", f"/v1/{place.app}/kv/n"))["value"] == 2
    for run in (waiting_run, asking_run, decided_run):
        events = (await place.ask("GET", f"{run}/events.json"))["events"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert [event["type"] for event in events].count("run_paused") == (run != waiting_run)
    # And back again.
    await place.finish_move(await place.start_move("local"))
    again = await place.start_run("asker")
    await place.wait_for_status(again, "paused")
    assert await place.get_status(asking_run) == "completed"


async def test_an_app_is_not_moved_between_two_attempts_at_an_approved_call(place: Place) -> None:
    run = await place.start_run("asker")
    await place.wait_for_status(run, "paused")
    services = place.baobab.application.services
    # Somebody approved it, and the worker that made it wrote and died.
    async with services.database.writing() as connection:
        arguments = {"status": "approved", "decided_at": place.clock.now()}
        statement = update(approvals).where(approvals.c.app_id == place.app).values(**arguments)
        approval_id = (await connection.execute(statement.returning(approvals.c.id))).scalar_one()
    await services.regions["local"].kv.for_attempt(approval_id).incr(place.app, "n", 1, None, Quota())
    answer = await place.ask("POST", f"/v1/apps/{place.app}/move", {"dest_region": EU}, 202)
    move = f"/v1/apps/{place.app}/migrations/{answer['migration_id']}"
    for _ in range(3):
        await place.run_due_jobs(5)
        assert (await place.ask("GET", move))["current_step"] == "blocking_writes"
        await place.ask("PUT", f"/v1/{place.app}/kv/other", {"value": 1}, 204)
    async with services.database.writing_unit() as unit:
        await services.jobs.enqueue(unit, JOB, {"approval_id": approval_id})
    await place.finish_move(move)
    await place.wait_for_status(run, "completed")
    assert (await place.ask("GET", f"/v1/{place.app}/kv/n"))["value"] == 1


async def test_an_approved_call_waits_for_a_move_that_takes_long(place: Place) -> None:
    run = await place.start_run("asker")
    await place.wait_for_status(run, "paused")
    data = [each for toolset in place.baobab.application.registry.toolsets for each in toolset.app_data]
    stores = place.baobab.application.services.regions["local"]
    for each in data:
        await each.freeze(stores, place.app)
    await place.approve_run(run)
    for _ in range(5):
        await place.run_due_jobs(60)
    for each in data:
        await each.thaw(stores, place.app)
    await place.run_due_jobs(60)
    await place.run_maintenance()
    await place.wait_for_status(run, "completed")
    assert (await place.ask("GET", f"/v1/{place.app}/kv/n"))["value"] == 1


async def test_a_move_that_is_given_up_leaves_runs_to_go_on_where_they_were(place: Place) -> None:
    waiting = await place.start_run("waiter")
    await place.wait_for_status(waiting, "running")
    (data,) = next(t.app_data for t in place.baobab.application.registry.toolsets if t.name == "agents")
    stores = place.baobab.application.services.regions["local"]
    await data.freeze(stores, place.app)
    place.gate.open.set()
    await place.run_maintenance()
    assert await place.get_status(waiting) == "running"
    await data.thaw(stores, place.app)
    await place.run_maintenance()
    await place.wait_for_status(waiting, "completed")


async def test_a_deleted_app_leaves_no_runs_and_nothing_to_complain_of(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [await place.start_run("waiter"), await place.start_run("asker")]
    for run, status in zip(runs, ["running", "paused"], strict=True):
        await place.wait_for_status(run, status)
    await place.ask("DELETE", f"/apps/{place.app}")
    place.gate.open.set()
    # Longer than a lease, and than what is purged after an app waits.
    await place.run_due_jobs(70)
    await place.run_maintenance()
    assert await place.count_rows() == {}
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert await jobs.list_unfinished_jobs(place.baobab.application) == []
