"""Runs of agents: what a step costs beside LangGraph as it comes, and how soon and how many runs begin and end."""

import asyncio
import contextlib
import gc
import json
import statistics
import tempfile
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from sqlalchemy import func, select, text

from baobab.composition import Application, open_application
from baobab.runtime.agents.tables import runs
from baobab.settings import load_settings
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.tools.accounts.first_account import ensure_first_account
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.context import RequestContext
from tests.bench.backends import POSTGRES, SQLITE, Servers
from tests.bench.callers import Answer, run_callers
from tests.bench.callers import Caller as Calls
from tests.bench.load import build_request, check_answer, free_port, start_server
from tests.bench.peers.stock_graph import StockGraph
from tests.bench.processes import cpu_seconds
from tests.bench.rest import KEY
from tests.statement_count import count_statements

WORKERS = (1, 2, 4)
_NODES, _RUNS, _ROUNDS = 100, 5, 5
_PAUSED = 200
_ALONE, _MANY, _CALLERS = 50, 100, 16
_CANCELS = 15
_COUNTED = 20
_MANY_ROUNDS = 2
_LOCK_WATCH_SECONDS = 0.02
_COUNT_LOCK_WAITS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
_TIMEOUT_SECONDS = 120.0
_READ = {
    "type": "tool",
    "tool_ref": {"source": "builtin", "name": "kv_get"},
    "args_template": {"key": "seed"},
    "output_key": "found",
}
_ASK = {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_incr"}, "args_template": {"key": "n"}}
_DONE = {"type": "end"}
_LIMITS = {"max_steps": 200, "max_tool_calls": 500}


def _chain_graph(*nodes: dict[str, Any]) -> dict[str, Any]:
    nodes_by_id = {f"n{index}": node for index, node in enumerate((*nodes, _DONE))}
    edges = [{"from": f"n{index}", "to": f"n{index + 1}"} for index in range(len(nodes))]
    tools = {"builtin": ["kv_get", "kv_incr"]}
    return {"spec_version": 1, "entry": "n0", "nodes": nodes_by_id, "edges": edges, "tools": tools, "limits": _LIMITS}


_AGENTS = {"long": _chain_graph(*[_READ] * _NODES), "short": _chain_graph(_READ), "asking": _chain_graph(_ASK)}
# It goes round and round until it has taken all its steps, which is a tenth of a second and more.
_AGENTS["round"] = {
    **_chain_graph(_READ),
    "edges": [
        {"from": "n0", "to": "n1", "when": {"==": [{"var": "state.found.value"}, "stop"]}},
        {"from": "n0", "to": "n0"},
    ],
}


class Step(NamedTuple):
    """Seconds."""

    cpu: float
    wall: float


class PausedCost(NamedTuple):
    bytes: float
    """Of memory, of each run."""
    tasks: int
    """More than without them, of all together."""
    threads: int


class ServedRate(NamedTuple):
    starts: tuple[float, float]
    """From the answer's moment to the first line of the run, in seconds: median and 99th percentile."""
    per_second: float
    cpu: float
    """Seconds of our processes, of each run that many callers start."""
    server_cpu: float
    """The same of the database servers."""
    lock_wait: float | None
    """Seconds for which sessions of the server wait for each other's locks, of each run; None for files."""


class SentStatements(NamedTuple):
    """The statements and commits of a run on Postgres."""

    statements: float
    commits: float


class Costs(NamedTuple):
    steps: dict[str, Step]
    paused_cost: PausedCost
    served_rates: dict[str, dict[int, ServedRate]]
    """By backend and number of workers."""
    sent_statements: SentStatements
    cancels: dict[str, tuple[float, float]]
    """By backend, to the end of a run that another process is asked to cancel: median and most, in seconds."""


def run(servers: Servers) -> Costs:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        steps = uvloop.run(_measure_steps(Path(folder) / "steps"))
        paused_cost = uvloop.run(_measure_paused(Path(folder) / "paused"))
        sent_statements = uvloop.run(_count_sent(Path(folder) / "sent", servers))
    backends = (SQLITE, POSTGRES)
    served_by = {
        backend: {workers: uvloop.run(_measure_served(backend, workers, servers)) for workers in WORKERS}
        for backend in backends
    }
    return Costs(
        steps,
        paused_cost,
        served_by,
        sent_statements,
        {backend: uvloop.run(_measure_cancels(backend, servers)) for backend in backends},
    )


@dataclass
class _EmbeddedApp:
    """An installation in this process, with an app and its agents."""

    application: Application
    owner: Caller
    app_id: str

    async def call_tool(self, tool: str, **arguments: Any) -> Any:
        return await self.application.registry.call(tool, arguments, self.owner, RequestContext("bench", "bench"))

    async def start(self, agent: str, number: object) -> str:
        arguments = {"app_id": self.app_id, "name": agent, "input": {}, "idempotency_key": str(number)}
        run_id: str = (await self.call_tool("agents_run", **arguments))["run_id"]
        return run_id

    async def wait_until(self, status: str, count: int) -> None:
        await _wait_until(self.application.services.database, status, count)


@contextlib.asynccontextmanager
async def _open_app(folder: Path, variables: dict[str, str] | None = None) -> AsyncIterator[_EmbeddedApp]:
    settings = load_settings({"BAOBAB_PLAN": "enterprise", **(variables or {})}, data=folder)
    async with open_application(settings) as application:
        key = await ensure_first_account(application.services, None)
        assert key is not None
        owner = await application.services.credentials.caller(f"Bearer {key}".encode())
        result = await application.registry.call(
            "apps_init", {"name": "bench"}, owner, RequestContext("bench", "bench")
        )
        here = _EmbeddedApp(application, owner, result["app_id"])
        await here.call_tool("kv_put", app_id=here.app_id, key="seed", value=7)
        for name, graph in _AGENTS.items():
            arguments = {"graph_spec": graph, "dedupe_window_seconds": 0}
            await here.call_tool("agents_create", app_id=here.app_id, name=name, **arguments)
        yield here


async def _measure_steps(folder: Path) -> dict[str, Step]:
    """The least of several rounds, in which the sides take turns."""
    stock = StockGraph(_NODES)
    steps_by_side: dict[str, list[Step]] = {"ours": [], "of it the tool": [], "LangGraph": []}
    async with _open_app(folder) as home:
        await _measure_runs(home, 2)
        await stock.measure_steps(folder, 2)
        for _ in range(_ROUNDS):
            steps_by_side["ours"].append(await _measure_runs(home, _RUNS))
            steps_by_side["of it the tool"].append(await _measure_tool(home))
            steps_by_side["LangGraph"].append(Step(*await stock.measure_steps(folder, _RUNS)))
    return {side: Step(min(s.cpu for s in steps), min(s.wall for s in steps)) for side, steps in steps_by_side.items()}


async def _measure_runs(home: _EmbeddedApp, count: int) -> Step:
    """Runs one after the other; what begins and ends them is in it."""
    database, before = (
        home.application.services.database,
        await _count_runs(home.application.services.database, "completed"),
    )
    cpu_began, ids = time.process_time(), []
    for number in range(count):
        ids.append(await home.start("long", time.monotonic_ns()))
        await home.wait_until("completed", before + number + 1)
    steps, cpu = count * (_NODES + 1), time.process_time() - cpu_began
    async with database.reading() as connection:
        rows = (await connection.execute(select(runs).where(runs.c.id.in_(ids)))).all()
    return Step(cpu / steps, sum((row.finished_at - row.created_at).total_seconds() for row in rows) / steps)


async def _measure_tool(home: _EmbeddedApp) -> Step:
    calls = _NODES * _RUNS
    began, cpu_began = time.perf_counter(), time.process_time()
    for _ in range(calls):
        await home.call_tool("kv_get", app_id=home.app_id, key="seed")
    return Step((time.process_time() - cpu_began) / calls, (time.perf_counter() - began) / calls)


async def _measure_paused(folder: Path) -> PausedCost:
    """What the second two hundred bring: the first have brought what all share."""
    async with _open_app(folder) as home:
        await _pause_runs(home, 0)
        before, tasks, threads = _traced_bytes(), len(asyncio.all_tasks()), threading.active_count()
        await _pause_runs(home, 1)
        after = _traced_bytes()
        tracemalloc.stop()
        more_tasks, more_threads = len(asyncio.all_tasks()) - tasks, threading.active_count() - threads
        return PausedCost((after - before) / _PAUSED, more_tasks, more_threads)


async def _count_sent(folder: Path, servers: Servers) -> SentStatements:
    """Runs of two nodes one after the other; what begins and ends transactions is not counted as a statement."""
    async with _open_app(folder, servers.settings(POSTGRES)) as home:
        for number in range(2):
            await home.start("short", f"warm {number}")
        await home.wait_until("completed", 2)
        with count_statements() as count:
            for number in range(_COUNTED):
                await home.start("short", number)
            # Counted, and not asked for: a question would be counted, too.
            while sum("INTO agent_events" in statement for statement in count.texts) < _COUNTED:
                await asyncio.sleep(0.05)
    return SentStatements(len(count.texts) / _COUNTED, count.commits / _COUNTED)


async def _pause_runs(home: _EmbeddedApp, group: int) -> None:
    if group == 0:
        tracemalloc.start()
    for number in range(_PAUSED):
        await home.start("asking", f"{group} {number}")
    await home.wait_until("paused", (group + 1) * _PAUSED)
    await asyncio.sleep(1)


def _traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@dataclass
class Installation:
    """Servers on one database, with an app and its agents."""

    ports: list[int]
    database: Database
    app_id: str
    pids: list[int] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: Any = None, *, status: int, port: int = 0) -> Any:
        request = build_request(method, path, self.ports[port], _encode_json(body), authorization=f"Bearer {KEY}")
        return json.loads((await _request_once(self.ports[port], request, status)).body or b"null")

    def path(self, agent: str) -> str:
        return f"/v1/{self.app_id}/agents/{agent}/runs"

    async def start(self, agent: str, number: object) -> str:
        body = {"input": {}, "idempotency_key": str(number)}
        run_id: str = (await self.ask("POST", self.path(agent), body, status=201))["run_id"]
        return run_id


@contextlib.asynccontextmanager
async def start_installation(
    settings: dict[str, str], workers: int, *, second: bool = False
) -> AsyncIterator[Installation]:
    """second: with another server, which makes no jobs."""
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        ports, pids = [free_port(), free_port()][: 1 + second], []
        for number, port in enumerate(ports):
            environment = {
                **settings,
                "BAOBAB_DATA": folder, "BAOBAB_PORT": str(port), "BAOBAB_BOOTSTRAP_KEY": KEY,
                "BAOBAB_PLAN": "certified", "BAOBAB_WORKERS": str(1 if number else workers),
                **({"BAOBAB_JOBS": "0"} if number else {}),
            }  # fmt: skip
            server = start_server("-m", "baobab", "serve", port=port, environment=environment)
            pids.append(await stack.enter_async_context(server))
        database = database_at(settings.get("BAOBAB_DATABASE_URL", f"sqlite:///{folder}/baobab.db"))
        await database.open()
        stack.push_async_callback(database.close)
        installation = Installation(ports, database, "", pids)
        installation.app_id = (await installation.ask("POST", "/init", {"name": "bench"}, status=201))["app_id"]
        await installation.ask("PUT", f"/v1/{installation.app_id}/kv/seed", {"value": 7}, status=204)
        for name, graph in _AGENTS.items():
            body = {"name": name, "graph_spec": graph, "dedupe_window_seconds": 0}
            await installation.ask("POST", f"/v1/{installation.app_id}/agents", body, status=201)
        yield installation


async def _measure_served(backend: str, workers: int, servers: Servers) -> ServedRate:
    async with start_installation(servers.settings(backend), workers) as here:
        # Every worker has loaded what it needs.
        await run_many(here, "warm", 20 * workers)
        began = await _last_finish(here)
        for number in range(_ALONE):
            await here.start("short", number)
            await asyncio.sleep(0.05)
        await _wait_until(here.database, "completed", 20 * workers + _ALONE)
        waits = await _list_waits(here.database, began)
        cpu_before, server_before = _count_cpu(here), servers.cpu_seconds()
        async with _watch_lock_waits(here.database) as lock_waits:
            best = max([await run_many(here, f"round {number}", _MANY) for number in range(_MANY_ROUNDS)])
        count = _MANY * _MANY_ROUNDS
        cpu, server_cpu = (_count_cpu(here) - cpu_before) / count, (servers.cpu_seconds() - server_before) / count
    lock_wait = lock_waits.seconds / count if here.database.dialect == "postgresql" else None
    starts = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    return ServedRate(starts, best, cpu, server_cpu, lock_wait)


def _count_cpu(here: Installation) -> float:
    return sum(cpu_seconds(pid) for pid in here.pids)


@dataclass
class _LockWaits:
    seconds: float = 0.0


@contextlib.asynccontextmanager
async def _watch_lock_waits(database: Database) -> AsyncIterator[_LockWaits]:
    """Looks fifty times a second at how many sessions of Postgres wait for a lock."""
    lock_waits = _LockWaits()

    async def watch() -> None:
        while database.dialect == "postgresql":
            began = time.monotonic()
            await asyncio.sleep(_LOCK_WATCH_SECONDS)
            waiting = (await database.execute(_COUNT_LOCK_WAITS)).scalar_one()
            lock_waits.seconds += waiting * (time.monotonic() - began)

    watching = asyncio.create_task(watch())
    try:
        yield lock_waits
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def run_many(here: Installation, prefix: str, count: int) -> float:
    """Runs a second, from the first one's start to the last one's end."""
    before, began = await _count_runs(here.database, "completed"), await _last_finish(here)
    numbers = iter(range(count))

    def caller() -> Calls:
        for number in numbers:
            body = _encode_json({"input": {}, "idempotency_key": f"{prefix} {number}"})
            request = build_request("POST", here.path("short"), here.ports[0], body, authorization=f"Bearer {KEY}")
            check_answer((yield request), 201)

    await run_callers(here.ports[0], [caller() for _ in range(_CALLERS)])
    await _wait_until(here.database, "completed", before + count)
    async with here.database.reading() as connection:
        mine = select(func.min(runs.c.created_at), func.max(runs.c.finished_at)).where(runs.c.created_at >= began)
        first, last = (await connection.execute(mine)).one()
    return count / float((last - first).total_seconds())


async def _measure_cancels(backend: str, servers: Servers) -> tuple[float, float]:
    delays: list[float] = []
    async with start_installation(servers.settings(backend), 1, second=True) as here:
        for number in range(_CANCELS):
            run_id = await here.start("round", number)
            await asyncio.sleep(0.02)
            asked_at = time.time()
            await here.ask("POST", f"{here.path('round')}/{run_id}/cancel", status=202, port=1)
            await _wait_until(here.database, "cancelled", number + 1)
            async with here.database.reading() as connection:
                end = (await connection.execute(select(runs.c.finished_at).where(runs.c.id == run_id))).scalar_one()
            delays.append(end.timestamp() - asked_at)
    return statistics.median(delays), max(delays)


async def _last_finish(here: Installation) -> Any:
    """After all runs that there are."""
    async with here.database.reading() as connection:
        latest = (await connection.execute(select(func.max(runs.c.finished_at)))).scalar()
    return latest or datetime(2000, 1, 1, tzinfo=UTC)


async def _list_waits(database: Database, since: Any) -> list[float]:
    async with database.reading() as connection:
        mine = select(runs.c.created_at, runs.c.started_at).where(runs.c.created_at >= since)
        rows = (await connection.execute(mine)).all()
    return sorted((row.started_at - row.created_at).total_seconds() for row in rows)


async def _count_runs(database: Database, status: str) -> int:
    async with database.reading() as connection:
        return int(await connection.scalar(select(func.count()).where(runs.c.status == status)) or 0)


async def _wait_until(database: Database, status: str, count: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while (reached_count := await _count_runs(database, status)) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{reached_count} of {count} runs are {status}")
        # Not often: it costs those who make the runs, too.
        await asyncio.sleep(0.05)


async def _request_once(port: int, request: bytes, status: int) -> Answer:
    answers: list[Answer] = []

    def caller() -> Calls:
        answers.append((yield request))

    await run_callers(port, [caller()])
    check_answer(answers[0], status)
    return answers[0]


def _encode_json(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body).encode()


def report(costs: Costs) -> Iterator[str]:
    yield "runs of agents"
    yield f"a step of {_NODES + 1}, on files"
    ours, stock = costs.steps["ours"], costs.steps["LangGraph"]
    for side, step in costs.steps.items():
        yield f"  {side:24}{step.cpu * 1e6:8.0f} us CPU{step.wall * 1e6:8.0f} us"
    yield f"  {'against LangGraph':24}{ours.cpu / stock.cpu:8.2f}       {ours.wall / stock.wall:8.2f}"
    pause = costs.paused_cost
    yield f"{_PAUSED} paused: {pause.bytes:.0f} bytes each, {pause.tasks} tasks and {pause.threads} threads more"
    counts = costs.sent_statements
    yield f"a run of two nodes on Postgres: {counts.statements:.1f} statements in {counts.commits:.1f} commits"
    yield f"{'':28}{'start, ms':>16}{'runs a second':>16}{'CPU, ms':>10}{'of servers':>12}{'lock waits':>12}"
    for backend, by_workers in costs.served_rates.items():
        for workers, served_by in by_workers.items():
            median, most = served_by.starts
            label = f"{backend}, {workers} worker{'s' * (workers > 1)}"
            lock_wait = "-" if served_by.lock_wait is None else f"{served_by.lock_wait * 1e3:.1f}"
            yield (
                f"{label:28}{f'{median * 1e3:.1f} / {most * 1e3:.1f}':>16}{served_by.per_second:>16.0f}"
                f"{served_by.cpu * 1e3:>10.1f}{served_by.server_cpu * 1e3:>12.1f}{lock_wait:>12}"
            )
    for workers in WORKERS:
        ratio = costs.served_rates[POSTGRES][workers].cpu / costs.served_rates[SQLITE][workers].cpu
        yield f"CPU of a run on Postgres against files, {workers} worker{'s' * (workers > 1)}: {ratio:.2f}"
    for backend, (median, most) in costs.cancels.items():
        yield f"{backend}: cancelled elsewhere within {median * 1e3:.0f} ms, at most {most * 1e3:.0f} ms"
