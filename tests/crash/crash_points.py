"""A worker of runs that is driven by hand: the test says what happens at the moment of one of its transactions."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import select, update

from baobab.runtime.jobs.job_attempt import JobAttempt
from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements
from baobab.tools.core.jobs import JobLost, RetryLater
from baobab.tools.core.services import Services
from baobab.tools.core.toolset import Toolset
from tests.conftest import Baobab
from tests.crash.runs import AGENT, AT_ONCE, BELOW, GRAPH, Run
from tests.installation import open_installation

T = TypeVar("T")
ABOVE = "above"
"""The agent whose one step is a run of another."""


def _short_graph(*names: str) -> dict[str, Any]:
    """Each transaction of a run is a run of its own here: as few as there can be."""
    nodes = {name: GRAPH["nodes"][name] for name in names}
    nodes["done"] = {"type": "end", "output_template": {"read": "{{ state.seed.value }}", "keys": "{{ input.keys }}"}}
    following = (*names[1:], "done")
    edges = [{"from": start, "to": to} for start, to in zip(names, following, strict=True)]
    return {**GRAPH, "entry": names[0], "nodes": nodes, "edges": edges}


_AGENTS = {
    AGENT: _short_graph("read", "several"),
    BELOW: _short_graph("read", "several"),
    ABOVE: _short_graph("read", "below"),
}
_MADE_HERE = ("agents_advance", "agents_decided", "agents_orphans", "approvals_execute", "agents_tend", "agents_expire")


class SimulatedCrash(BaseException):
    """A crash: the work under way is never continued."""


class CrashPoints:
    """The transactions of segments, at one of which something happens."""

    def __init__(self, database: Database) -> None:
        self._transact = database.transact
        self._what: Callable[[], Awaitable[None]] | None = None
        self._transactions_before = 0
        self._after = False
        database.transact = self._watch_transaction  # type: ignore[method-assign]

    def schedule(self, number: int, what: Callable[[], Awaitable[None]], *, after: bool) -> None:
        """Do so before the transaction of this number, from now on, or after it."""
        self._transactions_before, self._what, self._after = number, what, after

    @property
    def is_planned(self) -> bool:
        return self._what is not None

    async def reach_point(self, *, after: bool) -> None:
        if self._what is None or after is not self._after:
            return
        self._transactions_before -= 1
        if self._transactions_before < 0:
            what, self._what = self._what, None
            await what()

    async def _watch_transaction(self, work: Callable[[Statements], T], **options: Any) -> T:
        if work.__qualname__.startswith("CreditWriter."):
            return await self._transact(work, **options)
        await self.reach_point(after=False)
        result = await self._transact(work, **options)
        await self.reach_point(after=True)
        return result


@dataclass
class ManualWorker:
    """Makes the jobs of runs one by one, whoever holds them: nobody waits for a lease."""

    baobab: Baobab
    crash_points: CrashPoints
    app: str = ""
    runs: int = 0
    lost_job_ids: list[str] = field(default_factory=list)
    """The jobs that another attempt had taken over when they wrote."""

    @property
    def services(self) -> Services:
        return self.baobab.application.services

    async def create_agent(self, name: str, graph: dict[str, Any], **settings: Any) -> None:
        agent = {"name": name, "graph_spec": graph, "dedupe_window_seconds": 0, **settings}
        await self.post("/agents", agent, 201)

    async def start_run(self, agent: str = AGENT) -> Run:
        self.runs += 1
        keys = [f"key {self.runs} {index}" for index in range(AT_ONCE)]
        answer_json = await self.post(f"/agents/{agent}/runs", {"input": {"keys": keys}}, 201)
        return Run(answer_json["run_id"], keys, agent)

    async def finish_run(self, run: Run) -> None:
        """Until the run has ended: make what is to be made, approve what is asked."""
        while run.status not in ("completed", "failed", "cancelled", "timed_out"):
            await self.attempt_jobs(await self.list_unfinished())
            await self.read_run(run)
            await self.approve_run(run)

    async def read_run(self, run: Run) -> None:
        run.events = (await self.get(f"{run.path}/events.json?limit=500"))["events"]
        run.status = (await self.get(run.path))["run"]["status"]

    async def approve_run(self, run: Run) -> None:
        for waiting in run.open_questions:
            body = {"approval_token": waiting["approval_token"], "approved": True}
            path = f"/v1/{self.app}{run.resume_path(waiting)}"
            await self.baobab.client.post(path, json=body, headers=self.baobab.owner)

    async def approve_pending(self) -> None:
        """Over the other interface, which needs no event of the run."""
        response = await self.baobab.client.get("/v1/approvals?status=pending", headers=self.baobab.owner)
        for waiting in response.json()["approvals"]:
            path = f"/v1/approvals/{waiting['id']}/approve"
            decided_response = await self.baobab.client.post(path, json={}, headers=self.baobab.owner)
            assert decided_response.status_code == 200, decided_response.text

    async def list_unfinished(self) -> list[str]:
        query = select(jobs.c.id).where(jobs.c.finished_at.is_(None), jobs.c.kind.in_(_MADE_HERE)).order_by(jobs.c.id)
        async with self.services.database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def attempt_jobs(self, job_ids: list[str]) -> None:
        """One attempt at each."""
        for job_id in job_ids:
            statement = update(jobs).where(jobs.c.id == job_id, jobs.c.finished_at.is_(None))
            values = {"epoch": jobs.c.epoch + 1, "attempts": jobs.c.attempts + 1}
            async with self.services.database.writing() as connection:
                row = (await connection.execute(statement.values(**values).returning(jobs))).first()
            if row is not None:
                await self._attempt_job(row)

    async def _attempt_job(self, row: Any) -> None:
        registry = self.baobab.application.registry
        kind = registry.jobs[row.kind]
        attempt = JobAttempt(row, kind, registry, self.services.database, self.services.clock)
        try:
            if kind.consumes is None:
                await kind.work(attempt, **attempt.arguments)
            else:
                await kind.work(attempt, await attempt.event())
            if not attempt.has_ended:
                await attempt.finish()
        except RetryLater as again:
            await attempt.reschedule(again.seconds, blameless=True)
        except JobLost:
            self.lost_job_ids.append(row.id)
        except SimulatedCrash:
            pass

    async def get(self, path: str) -> Any:
        answer = await self.baobab.client.get(f"/v1/{self.app}{path}", headers=self.baobab.owner)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any, status: int) -> Any:
        answer = await self.baobab.client.post(f"/v1/{self.app}{path}", json=body, headers=self.baobab.owner)
        assert answer.status_code == status, answer.text
        return answer.json()


@contextlib.asynccontextmanager
async def open_manual_worker(data: Path, *further: Toolset) -> AsyncIterator[ManualWorker]:
    """In an installation that runs no jobs by itself, with an app that has the agents. further: toolsets beside our
    own.
    """
    async with open_installation(data, {"BAOBAB_JOBS": "0"}, further=further) as baobab:
        services = baobab.application.services
        manual_worker = ManualWorker(baobab, CrashPoints(services.database), await baobab.create_app())
        put = await baobab.client.put(f"/v1/{manual_worker.app}/kv/seed", json={"value": 7}, headers=baobab.owner)
        assert put.status_code == 204
        for name, graph in _AGENTS.items():
            await manual_worker.create_agent(name, graph)
        yield manual_worker
