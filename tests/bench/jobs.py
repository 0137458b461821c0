"""Durable jobs: ours and, where it can be installed, DBOS, each in processes of its own on files and on Postgres."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.backends import POSTGRES, SQLITE, Servers
from tests.bench.peers.environments import DBOS, install_peer
from tests.bench.processes import cpu_seconds

_AT_ONCE = 8
_ALONE, _GAP = 100, 0.05
_BACKLOG = 500
_ROUNDS, _TRANSACTIONS = 6, 50
_IDLE_SECONDS = 10.0
_TIMEOUT_SECONDS = 120.0
_ROOT = Path(__file__).parents[2]


class Side(NamedTuple):
    python: str
    module: str
    polling: tuple[str, ...] = ()
    """What is asked of DBOS alone."""

    def command(self, url: str, role: str) -> list[str]:
        return [self.python, "-m", self.module, url, role, *self.polling, str(_AT_ONCE)]


class EnqueueCost(NamedTuple):
    """What one job adds to a transaction that writes a row in any case, in seconds."""

    cpu: float
    seconds: float

    def __sub__(self, other: "EnqueueCost") -> "EnqueueCost":
        return EnqueueCost(self.cpu - other.cpu, self.seconds - other.seconds)

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> "EnqueueCost":
        return cls(answer["cpu"], answer["seconds"])


class WorkerCost(NamedTuple):
    """What the jobs cost those who make them, in seconds."""

    here: tuple[float, float]
    """From the commit to the job's first line, in the process that enqueued it: median and 99th percentile."""
    elsewhere: tuple[float, float]
    job_cpu: float
    """Of one job of a backlog, in the worker."""
    job_stores: float
    """The same in the database server."""
    per_second: float
    idle_cpu: float
    """CPU seconds a minute of a worker with nothing to do."""
    idle_stores: float
    threads: int
    megabytes: float


class Cost(NamedTuple):
    enqueue: EnqueueCost
    worker: WorkerCost


Costs = dict[str, dict[str, Cost]]


def run(servers: Servers) -> Costs:
    """By backend and side."""
    sides = {"ours": Side(sys.executable, "tests.bench.our_jobs")} | _dbos_sides()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return {backend: _measure_backend(backend, sides, Path(folder), servers) for backend in (SQLITE, POSTGRES)}


def _measure_backend(backend: str, sides: dict[str, Side], folder: Path, servers: Servers) -> dict[str, Cost]:
    addresses = {name: _database_url(backend, folder, servers) for name in sides}
    worker_costs = {name: _measure_worker(side, addresses[name], servers) for name, side in sides.items()}
    # The workers are gone: nobody makes what is enqueued now.
    enqueue = _measure_enqueue({name: side.command(addresses[name], "client") for name, side in sides.items()})
    return {name: Cost(enqueue[name], worker_costs[name]) for name in sides}


def _database_url(backend: str, folder: Path, servers: Servers) -> str:
    """Returns the address of an empty database."""
    if backend == POSTGRES:
        return servers.settings(POSTGRES)["BAOBAB_DATABASE_URL"]
    return f"sqlite:///{tempfile.mkdtemp(dir=folder)}/rows.db"


def _measure_enqueue(commands: dict[str, list[str]]) -> dict[str, EnqueueCost]:
    """The least of several rounds, in which the sides take turns: the machine's other work only ever adds."""
    bare: dict[str, list[EnqueueCost]] = {name: [] for name in commands}
    with_job: dict[str, list[EnqueueCost]] = {name: [] for name in commands}
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(_Process.start(command)) for name, command in commands.items()}
        for client in clients.values():
            client.commit(20, 1)
        for _ in range(_ROUNDS):
            for name, client in clients.items():
                bare[name].append(EnqueueCost.from_answer(client.commit(_TRANSACTIONS, 0)))
                with_job[name].append(EnqueueCost.from_answer(client.commit(_TRANSACTIONS, 1)))
    return {name: _minimum_cost(with_job[name]) - _minimum_cost(bare[name]) for name in commands}


def _minimum_cost(costs: list[EnqueueCost]) -> EnqueueCost:
    return EnqueueCost(min(one.cpu for one in costs), min(one.seconds for one in costs))


def _measure_worker(side: Side, url: str, servers: Servers) -> WorkerCost:
    # The worker first: it makes the tables.
    with _Process.start(side.command(url, "worker")) as worker, _Process.start(side.command(url, "client")) as client:
        for process in (worker, client):
            process.commit(20, 1)
        worker.wait_for_starts(40)
        time.sleep(2)
        began, stores_began = worker.cpu(), servers.cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        idle, idle_stores = worker.cpu() - began, servers.cpu_seconds() - stores_began
        here, elsewhere = _measure_latency(worker, worker), _measure_latency(client, worker)
        backlogs = [_measure_backlog(client, worker, servers) for _ in range(2)]
        size = worker.ask("size")
    return WorkerCost(
        here=here,
        elsewhere=elsewhere,
        job_cpu=min(cpu for cpu, _, _ in backlogs) / _BACKLOG,
        job_stores=min(stores for _, stores, _ in backlogs) / _BACKLOG,
        per_second=_BACKLOG / min(seconds for _, _, seconds in backlogs),
        idle_cpu=idle / _IDLE_SECONDS * 60,
        idle_stores=idle_stores / _IDLE_SECONDS * 60,
        threads=size["threads"],
        megabytes=size["megabytes"],
    )


def _measure_backlog(client: "_Process", worker: "_Process", servers: Servers) -> tuple[float, float, float]:
    """CPU seconds of the worker and of the servers, and seconds to the start of the last job."""
    began, stores_began = worker.cpu(), servers.cpu_seconds()
    committed_at = client.commit(1, _BACKLOG)["committed"][0]
    last_start = max(worker.wait_for_starts(_BACKLOG))
    # The last ones are still to be written down as done.
    time.sleep(1)
    return worker.cpu() - began, servers.cpu_seconds() - stores_began, last_start - committed_at


def _measure_latency(asking: "_Process", worker: "_Process") -> tuple[float, float]:
    """Jobs that are asked for one by one, and begin in the order in which they were."""
    commit_times = asking.commit(_ALONE, 1, _GAP)["committed"]
    waits = sorted(began - at for at, began in zip(commit_times, worker.wait_for_starts(_ALONE), strict=True))
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


class _Process:
    """One that obeys lines (job_process.py)."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._read_answer()

    @classmethod
    @contextlib.contextmanager
    def start(cls, command: list[str]) -> Iterator["_Process"]:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_ROOT,
        ) as process:
            try:
                yield cls(process)
            finally:
                process.kill()

    def cpu(self) -> float:
        return cpu_seconds(self._process.pid)

    def ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read_answer()

    def commit(self, count: int, job_count: int, gap: float = 0.0) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask(f"commit {count} {job_count} {gap}")
        return answer

    def wait_for_starts(self, count: int) -> list[float]:
        """When so many jobs began; all that was asked for must have."""
        start_times: list[float] = []
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while len(start_times) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(start_times)} of {count} jobs have begun")
            time.sleep(0.3)
            start_times += self.ask("starts")
        if len(start_times) > count:
            raise RuntimeError(f"{len(start_times)} jobs have begun, of {count} that were asked for")
        return sorted(start_times)

    def _read_answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process ended")
        return json.loads(line)


def _dbos_sides() -> dict[str, Side]:
    """DBOS at two paces of polling: the pace is its least start latency, and its cost when there is nothing to do."""
    try:
        python = install_peer(DBOS)
    except subprocess.CalledProcessError:
        print(f"DBOS {DBOS.version} cannot be installed here; ours stands alone.", flush=True)
        return {}
    module = "tests.bench.peers.dbos_jobs"
    return {f"DBOS, {pace} s": Side(str(python), module, (pace,)) for pace in ("0.1", "0.02")}


_ROWS: list[tuple[str, Callable[[Cost], str]]] = [
    ("enqueue, CPU us", lambda cost: f"{cost.enqueue.cpu * 1e6:.0f}"),
    ("enqueue, us", lambda cost: f"{cost.enqueue.seconds * 1e6:.0f}"),
    ("start in this process, ms", lambda cost: _format_waits(cost.worker.here)),
    ("start in another, ms", lambda cost: _format_waits(cost.worker.elsewhere)),
    ("a job of many, CPU us", lambda cost: f"{cost.worker.job_cpu * 1e6:.0f}"),
    ("  in the database server", lambda cost: f"{cost.worker.job_stores * 1e6:.0f}"),
    ("jobs a second", lambda cost: f"{cost.worker.per_second:.0f}"),
    ("idle, CPU s a minute", lambda cost: f"{cost.worker.idle_cpu:.2f}"),
    ("  in the database server", lambda cost: f"{cost.worker.idle_stores:.2f}"),
    ("threads", lambda cost: str(cost.worker.threads)),
    ("megabytes", lambda cost: f"{cost.worker.megabytes:.0f}"),
]


def _format_waits(waits: tuple[float, float]) -> str:
    return f"{waits[0] * 1e3:.1f} / {waits[1] * 1e3:.1f}"


def report(costs: Costs) -> Iterator[str]:
    yield f"durable jobs, {_AT_ONCE} at once; starts: median / 99th percentile of {_ALONE}"
    for backend, sides in costs.items():
        yield ""
        yield f"{backend:28}" + "".join(f"{side:>16}" for side in sides)
        for name, render in _ROWS:
            yield f"{name:28}" + "".join(f"{render(cost):>16}" for cost in sides.values())
