"""Runs of an agent that read, write and ask, and somebody who approves it all, whatever becomes of the servers."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from sqlalchemy import func, select

from baobab.runtime.agents.tables import ENDED
from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.sql.databases import database_at
from baobab.tools.approvals.tables import approvals
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app

AGENT = "counter"
BELOW = "sharer"
"""The agent that one step of a run is a run of."""
AT_ONCE = 2
"""Keys that a run counts up at the same time."""
ASKS = AT_ONCE + 2
"""Approvals that a run needs: for each of those keys, to go on, and below it for the key that all runs share."""
CALLS = ASKS + 1
"""Calls that a run makes: those, but for the run below it, and one to read."""
_PAUSE_SECONDS = 0.1
"""From one look at five runs to the next."""
_LONGEST_SECONDS = 300
_INCR = {"source": "builtin", "name": "kv_incr"}
# A raise is nothing that could be done twice without showing.
GRAPH_BELOW: dict[str, Any] = {
    "spec_version": 1,
    "entry": "shared",
    "tools": {"builtin": ["kv_incr"]},
    "nodes": {
        "shared": {"type": "tool", "tool_ref": _INCR, "args_template": {"key": "shared"}, "output_key": "shared"},
        "done": {"type": "end", "output_template": {"read": "{{ input.read }}", "keys": "{{ input.keys }}"}},
    },
    "edges": [{"from": "shared", "to": "done"}],
}
GRAPH: dict[str, Any] = {
    "spec_version": 1,
    "entry": "read",
    "tools": {"builtin": ["kv_get", "kv_incr", "interrupt"]},
    "nodes": {
        "read": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "kv_get"},
            "args_template": {"key": "seed"},
            "output_key": "seed",
        },
        "several": {
            "type": "map",
            "over": "{{ input.keys }}",
            "tool_ref": _INCR,
            "args_template": {"key": "{{ item }}"},
            "output_key": "several",
        },
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "Go on?"},
            "output_key": "asked",
        },
        "below": {
            "type": "agent",
            "agent": BELOW,
            "input_template": {"read": "{{ state.seed.value }}", "keys": "{{ input.keys }}"},
            "output_key": "below",
        },
        "done": {"type": "end", "output_template": "{{ state.below }}"},
    },
    "edges": [
        {"from": "read", "to": "several"},
        {"from": "several", "to": "ask"},
        {"from": "ask", "to": "below"},
        {"from": "below", "to": "done"},
    ],
}


@dataclass
class Run:
    id: str
    keys: list[str]
    agent: str = AGENT
    status: str = "queued"
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/agents/{self.agent}/runs/{self.id}"

    def list_payloads(self, type_: str) -> list[dict[str, Any]]:
        return [event["payload"] for event in self.events if event["type"] == type_]

    @property
    def open_questions(self) -> list[dict[str, Any]]:
        """What it has asked, or the run below it, and has no outcome yet, as far as its events tell."""
        call_ids = {payload["call_id"] for payload in self.list_payloads("tool_call_end")}
        over = any(payload["tool_source"] == "agent" for payload in self.list_payloads("tool_call_end"))
        return [
            payload
            for payload in self.list_payloads("run_paused")
            if not (over if "run_id" in payload else payload["call_id"] in call_ids)
        ]

    @property
    def child_run(self) -> "Run":
        """The run that was a step of it."""
        (run_id,) = {payload["run_id"] for payload in self.list_payloads("run_paused") if "run_id" in payload}
        return Run(run_id, self.keys, BELOW)

    def resume_path(self, waiting: dict[str, Any]) -> str:
        """Where is decided what it waits for."""
        return f"/agents/{waiting.get('agent', self.agent)}/runs/{waiting.get('run_id', self.id)}/resume"


@dataclass
class RunsLoad:
    session: aiohttp.ClientSession
    app: str
    all: list[Run] = field(default_factory=list)
    _run_count: int = 0

    @classmethod
    async def create(cls, session: aiohttp.ClientSession, server: ServerProcess) -> "RunsLoad":
        runs = cls(session, await create_app(session, server, "runs"))
        status, _ = await runs.ask(server, "PUT", "/kv/seed", {"value": 7})
        assert status == 204
        for name, graph in ((BELOW, GRAPH_BELOW), (AGENT, GRAPH)):
            agent = {"name": name, "graph_spec": graph, "dedupe_window_seconds": 0}
            status, answer_json = await runs.ask(server, "POST", "/agents", agent)
            assert status == 201, answer_json
        return runs

    @property
    def open_runs(self) -> list[Run]:
        return [run for run in self.all if run.status not in ENDED]

    async def ask(self, server: ServerProcess, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer; (0, None) where there was none."""
        try:
            async with self.session.request(method, f"{server.address}/v1/{self.app}{path}", json=body) as answer:
                return answer.status, await answer.json() if answer.status != 204 else None
        except aiohttp.ClientError:
            return 0, None

    async def start_runs(self, server: ServerProcess, count: int) -> None:
        await asyncio.gather(*(self._start_run(server) for _ in range(count)))

    async def _start_run(self, server: ServerProcess) -> None:
        self._run_count += 1
        keys = [f"key {self._run_count} {index}" for index in range(AT_ONCE)]
        body = {"input": {"keys": keys}, "idempotency_key": f"run {self._run_count}"}
        status, answer_json = await self.ask(server, "POST", f"/agents/{AGENT}/runs", body)
        assert status == 201, answer_json
        self.all.append(Run(answer_json["run_id"], keys))

    async def drive_runs(self, servers: list[ServerProcess], dice: random.Random, all_begun: asyncio.Event) -> None:
        """Read what the runs do, and approve what they ask, until all have ended. `servers` may change meanwhile."""
        while self.open_runs or not all_begun.is_set():
            await asyncio.gather(*(self._check_run(dice.choice(servers), run, dice) for run in self.open_runs))
            # Whoever looks at many looks less often: it is the servers that are to have something to do.
            await asyncio.sleep(_PAUSE_SECONDS * max(1, len(self.open_runs) / 5))

    async def _check_run(self, server: ServerProcess, run: Run, dice: random.Random) -> None:
        # Before its events: one that has ended has told all of them.
        status, answer_json = await self.ask(server, "GET", run.path)
        if status != 200:
            assert status in (0, 503), answer_json
            return
        found_status = answer_json["run"]["status"]
        status, answer_json = await self.ask(
            server, "GET", f"{run.path}/events.json?since_seq={len(run.events)}&limit=500"
        )
        if status != 200:
            assert status in (0, 503), answer_json
            return
        run.events += answer_json["events"]
        run.status = found_status
        await asyncio.gather(*(self._approve(server, run, waiting, dice) for waiting in run.open_questions))

    async def _approve(self, server: ServerProcess, run: Run, waiting: dict[str, Any], dice: random.Random) -> None:
        """Over one interface or the other, twice now and then: what was decided is not decided again."""
        body = {"approval_token": waiting["approval_token"], "approved": True}
        for _ in range(dice.choice([1, 1, 2])):
            if dice.random() < 0.7:
                status, answer_json = await self.ask(server, "POST", run.resume_path(waiting), body)
            else:
                path = f"{server.address}/v1/approvals/{waiting['approval_id']}/approve"
                try:
                    async with self.session.post(path, json={}) as answer:
                        status, answer_json = answer.status, await answer.json()
                except aiohttp.ClientError:
                    return
            assert status in (0, 200, 400, 401, 403, 404, 409, 503), answer_json

    async def verify(self, server: ServerProcess, here: Installation) -> None:
        """Every run has ended well and has told each thing once; each call was approved, and made, once."""
        approval_counts: dict[str, int] = {}
        for run in self.all:
            assert (await self.read_run(server, run)).events == run.events, "what was told has changed"
            verify_events(run, ASKS, CALLS)
            below = await self.read_run(server, run.child_run)
            verify_events(below, 1, 1)
            approval_counts |= {run.id: ASKS - 1, below.id: 1}
            for key in run.keys:
                assert await self.read_counter(server, key) == 1, key
        assert await self.read_counter(server, "shared") == len(self.all)
        await verify_leftovers(here, approval_counts)

    async def read_run(self, server: ServerProcess, run: Run) -> Run:
        """The run as it is now."""
        status, answer_json = await self.ask(server, "GET", run.path)
        assert status == 200, answer_json
        now = answer_json["run"]["status"]
        status, answer_json = await self.ask(server, "GET", f"{run.path}/events.json?limit=500")
        assert status == 200, answer_json
        return Run(run.id, run.keys, run.agent, now, answer_json["events"])

    async def read_counter(self, server: ServerProcess, key: str) -> int:
        status, answer_json = await self.ask(server, "GET", f"/kv/{key}")
        assert status == 200, answer_json
        value: int = answer_json["value"]
        return value


@contextlib.asynccontextmanager
async def drive_in_background(runs: RunsLoad, servers: list[ServerProcess], dice: random.Random) -> AsyncIterator[None]:
    """Somebody approves, until every run has ended."""
    all_begun = asyncio.Event()
    seeing = asyncio.create_task(runs.drive_runs(servers, dice, all_begun))
    try:
        yield
        all_begun.set()
        async with asyncio.timeout(_LONGEST_SECONDS):
            await seeing
    finally:
        seeing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await seeing


def verify_events(run: Run, asks: int, calls: int) -> None:
    """asks: how many approvals it needed, with the run below it; calls: how many it made itself."""
    assert run.status == "completed", (run.status, run.events[-1])
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
    event_counts = Counter((event["type"], event["payload"].get("call_id")) for event in run.events)
    once = {key: count for key, count in event_counts.items() if key[1] is not None and key[0] != "run_paused"}
    assert set(once.values()) == {1}, once
    assert len({payload["approval_id"] for payload in run.list_payloads("run_paused")}) == asks
    types = Counter(event["type"] for event in run.events)
    assert (types["run_start"], types["run_end"], types["run_paused"]) == (1, 1, asks)
    assert (types["tool_call_start"], types["tool_call_end"]) == (calls, calls)
    assert run.events[-1]["type"] == "run_end"
    assert run.events[-1]["payload"]["output"] == {"read": 7, "keys": run.keys}


async def verify_leftovers(here: Installation, approval_counts: dict[str, int]) -> None:
    """Of each run so many approvals as were asked, each executed; and of what was asked of workers nothing is left."""
    database = database_at(here.database_url)
    await database.open()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            unfinished_query = select(func.count()).where(jobs.c.finished_at.is_(None), jobs.c.kind.like("agents_%"))
            while True:
                async with database.reading() as connection:
                    if not await connection.scalar(unfinished_query):
                        break
                await asyncio.sleep(0.2)
        async with database.reading() as connection:
            approval_rows = (await connection.execute(select(approvals.c.run_id, approvals.c.status))).all()
            failed_jobs = (
                await connection.execute(select(jobs.c.id, jobs.c.error).where(jobs.c.error.is_not(None)))
            ).all()
    finally:
        await database.close()
    assert Counter(row.run_id for row in approval_rows) == approval_counts
    assert {row.status for row in approval_rows} == {"executed"}
    assert [tuple(row) for row in failed_jobs] == []
