"""The interfaces side by side on all backends, with one, two and four workers: rates, and what a request costs whom.

Callers, workers and database servers share one machine. So the rates say how far the machine's processors go, and the
CPU of a request what more of them would give.
"""

import asyncio
import contextlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import uvloop

from tests.bench import backends
from tests.bench.backends import Servers
from tests.bench.callers import Caller, run_callers
from tests.bench.load import build_request, check_answer, fetch_body, free_port, start_server
from tests.bench.mcp_endpoint import build_message
from tests.bench.processes import cpu_by_process, cpu_seconds
from tests.bench.rest import KEY, make_apps
from tests.bench.size import size
from tests.bench.table import Cell, best_cell, render_table

WORKERS = (1, 2, 4)[: size(3)]
_CALLERS, _CALLERS_OF_ROWS = 64, 16
_ROUNDS = size(3)
_SECONDS = 0.5
_WARM_SECONDS = 0.1
_KEYS_OF_CALLER = 8
_ACCOUNT_KEYS = 20

Rows = dict[str, dict[str, Cell]]
Work = Callable[[int, int], Caller]
"""One request and what its answer must be, told which caller it is and how many calls that caller made before."""


@dataclass
class _Installation:
    """A server under load, and what it must hold when the load is over."""

    pid: int
    port: int
    apps: list[str]
    keys: list[str]
    written_values: dict[str, int] = field(default_factory=dict)
    increments: Counter[str] = field(default_factory=Counter)
    created_apps: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def get(self, caller: int, turn: int) -> Caller:
        answer = yield self._rest("GET", self._path(caller, turn))
        check_answer(answer, 200, b'{"value":{"n":%d,' % self.written_values[self._path(caller, turn)])

    def put(self, caller: int, turn: int) -> Caller:
        # Values differ each time: what is the same already never reaches the disk.
        path, number = self._path(caller, turn), next(self._numbers)
        body = {"value": {"n": number, "items": [1, 2, 3], "name": "cart", "total": 12.5}}
        check_answer((yield self._rest("PUT", path, body)), 204)
        self.written_values[path] = number

    def incr(self, caller: int, turn: int) -> Caller:
        path = self._counter(next(self._numbers))
        check_answer((yield self._rest("POST", f"{path}/incr", {"by": 1})), 200, b'{"value":')
        self.increments[path] += 1

    def kv_get(self, caller: int, turn: int) -> Caller:
        _, _, app_id, _, key = (path := self._path(caller, turn)).split("/")
        arguments = {"app_id": app_id, "key": key}
        params = {"name": "kv_get", "arguments": arguments}
        answer = yield build_message(self.port, "/mcp", turn, "tools/call", params, mcp_name="kv_get")
        check_answer(answer, 200, b'"n":%d,' % self.written_values[path])

    def init(self, caller: int, turn: int) -> Caller:
        number = next(self._numbers)
        answer = yield self._rest("POST", "/init", {"name": f"made-{number}"}, self._key(number))
        check_answer(answer, 201, b'"created":true')
        self.created_apps += 1

    def apps_list(self, caller: int, turn: int) -> Caller:
        answer = yield self._rest("GET", "/apps?limit=10", key=self._key(next(self._numbers)))
        check_answer(answer, 200, b'"next_cursor":')

    async def check(self) -> None:
        """The last of what was acknowledged is there, counters are exact, and as many apps are there as were made."""
        for path, number in self.written_values.items():
            payload = json.loads(await fetch_body(self.port, self._rest("GET", path)))
            if payload["value"]["n"] != number:
                raise RuntimeError(f"{path} has {payload}, and not {number}")
        for path, count in self.increments.items():
            payload = json.loads(await fetch_body(self.port, self._rest("GET", path)))
            if payload["value"] != count:
                raise RuntimeError(f"{path} has {payload}, after {count} calls")
        last = json.loads(await fetch_body(self.port, self._rest("POST", "/init", {"name": "last"})))
        there = last["_meta"]["resource_info"]["apps"]
        if there != len(self.apps) + self.created_apps + 1:
            raise RuntimeError(f"{there} apps, and {len(self.apps) + self.created_apps + 1} were made")

    def list_works(self) -> dict[str, tuple[int, Work]]:
        """By name, and by how many callers at once."""
        return {
            "GET a key": (_CALLERS, self.get),
            "PUT a key": (_CALLERS, self.put),
            "POST a key's incr": (_CALLERS, self.incr),
            "MCP tools/call kv_get": (_CALLERS, self.kv_get),
            "GET /apps": (_CALLERS_OF_ROWS, self.apps_list),
            "POST /init": (_CALLERS_OF_ROWS, self.init),
        }

    def _rest(self, method: str, path: str, body: Any = None, key: str = KEY) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        return build_request(method, path, self.port, content, authorization=f"Bearer {key}")

    def _path(self, caller: int, turn: int) -> str:
        app_id = self.apps[caller % len(self.apps)]
        return f"/v1/{app_id}/kv/user:{caller}:{turn % _KEYS_OF_CALLER}"

    def _counter(self, number: int) -> str:
        # One for each app, which all callers raise: an app has a thousand operations a second.
        return f"/v1/{self.apps[number % len(self.apps)]}/kv/hits"

    def _key(self, number: int) -> str:
        return self.keys[number % len(self.keys)]


class WorkerResult(NamedTuple):
    rows: Rows
    busiest: dict[str, float]
    """The share of the work that the busiest process had, by backend."""


def run(servers: Servers) -> Iterator[tuple[int, WorkerResult]]:
    """Yields the result for each number of workers, as soon as it is measured."""
    for workers in WORKERS:
        yield workers, uvloop.run(_measure_workers(workers, servers))


async def _measure_workers(workers: int, servers: Servers) -> WorkerResult:
    names = backends.NAMES
    async with contextlib.AsyncExitStack() as stack:
        starting = (stack.enter_async_context(_start_installation(workers, servers.settings(name))) for name in names)
        installations = dict(zip(names, await asyncio.gather(*starting), strict=True))
        before = {name: cpu_by_process(installation.pid) for name, installation in installations.items()}
        rounds = [await _measure_round(installations, servers) for _ in range(_ROUNDS)]
        busiest = {name: _busiest_share(installation.pid, before[name]) for name, installation in installations.items()}
        for installation in installations.values():
            await installation.check()
    rows = {work: {name: best_cell([one[work][name] for one in rounds]) for name in names} for work in rounds[0]}
    return WorkerResult(rows, busiest)


def _busiest_share(pid: int, before: dict[int, float]) -> float:
    cpu = [now - before.get(process, 0.0) for process, now in cpu_by_process(pid).items()]
    return max(cpu) / sum(cpu)


async def _measure_round(installations: dict[str, _Installation], servers: Servers) -> Rows:
    rows: Rows = {}
    for name, installation in installations.items():
        for kind, (callers, work) in installation.list_works().items():
            await _run_calls(installation.port, callers, work, _WARM_SECONDS)
            before, stores_before = cpu_seconds(installation.pid), servers.cpu_seconds()
            calls, seconds = await _run_calls(installation.port, callers, work, _SECONDS)
            cpu = cpu_seconds(installation.pid) - before
            stores = servers.cpu_seconds() - stores_before
            rows.setdefault(kind, {})[name] = Cell(calls / seconds, cpu / calls * 1e6, stores / calls * 1e6)
    return rows


@contextlib.asynccontextmanager
async def _start_installation(workers: int, settings: dict[str, str]) -> AsyncIterator[_Installation]:
    port = free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = {
            **settings,
            "BAOBAB_DATA": folder, "BAOBAB_PORT": str(port), "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "certified",
            "BAOBAB_WORKERS": str(workers),
        }  # fmt: skip
        async with start_server("-m", "tests.bench.wide_server", "serve", port=port, environment=environment) as pid:
            apps = await asyncio.to_thread(make_apps, port)
            installation = _Installation(pid, port, apps, [await _create_key(port) for _ in range(_ACCOUNT_KEYS)])
            await run_callers(port, [_fill_keys(installation, caller) for caller in range(_CALLERS)])
            yield installation


async def _create_key(port: int) -> str:
    request = build_request("POST", "/api-keys", port, b'{"name":"bench"}', authorization=f"Bearer {KEY}")
    key: str = json.loads(await fetch_body(port, request))["key"]
    return key


def _fill_keys(installation: _Installation, caller: int) -> Caller:
    for turn in range(_KEYS_OF_CALLER):
        yield from installation.put(caller, turn)


async def _run_calls(port: int, callers: int, work: Work, seconds: float) -> tuple[int, float]:
    """How many calls were answered, and in how many seconds."""
    began, calls = 0.0, 0

    def begin() -> None:
        nonlocal began
        began = time.perf_counter()

    def caller(number: int) -> Caller:
        nonlocal calls
        turn = 0
        while time.perf_counter() < began + seconds:
            yield from work(number, turn)
            turn += 1
            calls += 1

    await run_callers(port, [caller(number) for number in range(callers)], begin)
    return calls, time.perf_counter() - began


def report(results: Iterable[tuple[int, WorkerResult]]) -> Iterator[str]:
    names = backends.NAMES
    yield from (f"{name}: {backends.MEANING[name]}" for name in names)
    rows_so_far: list[Rows] = []
    for workers, (rows, busiest) in results:
        rows_so_far.append(rows)
        yield ""
        yield from render_table(f"{workers} worker{'s' * (workers > 1)}", names, rows)
        if workers > 1:
            yield "share of the busiest: " + ", ".join(f"{name} {busiest[name]:.2f}" for name in names)
            yield f"calls a second, against {WORKERS[0]} worker: {', '.join(names)}"
            for kind, cells in rows.items():
                ratios = (f"{cells[name].rate / rows_so_far[0][kind][name].rate:8.2f}" for name in names)
                yield f"{kind:24}" + "".join(ratios)
