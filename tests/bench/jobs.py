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

from tests.bench.columns import FILES, POSTGRES, Servers
from tests.bench.peers.installed import DBOS, python_of
from tests.bench.processes import cpu_seconds

_AT_ONCE = 8
_ALONE, _GAP = 100, 0.05
_BACKLOG = 500
_ROUNDS, _TRANSACTIONS = 6, 50
_IDLE_SECONDS = 10.0
_PATIENCE = 120.0
_ROOT = Path(__file__).parents[2]


class Side(NamedTuple):
    python: str
    module: str
    polling: tuple[str, ...] = ()
    """What is asked of DBOS alone."""

    def command(self, url: str, role: str) -> list[str]:
        return [self.python, "-m", self.module, url, role, *self.polling, str(_AT_ONCE)]


class Asked(NamedTuple):
    """What one job adds to a transaction that writes a row in any case, in seconds."""

    cpu: float
    seconds: float

    def __sub__(self, other: "Asked") -> "Asked":
        return Asked(self.cpu - other.cpu, self.seconds - other.seconds)

    @classmethod
    def of(cls, answer: dict[str, Any]) -> "Asked":
        return cls(answer["cpu"], answer["seconds"])


class Made(NamedTuple):
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
    asked: Asked
    made: Made


Costs = dict[str, dict[str, Cost]]


def run(servers: Servers) -> Costs:
    """By column and side."""
    sides = {"ours": Side(sys.executable, "tests.bench.our_jobs")} | _dbos_sides()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return {column: _column(column, sides, Path(folder), servers) for column in (FILES, POSTGRES)}


def _column(column: str, sides: dict[str, Side], folder: Path, servers: Servers) -> dict[str, Cost]:
    addresses = {name: _address(column, folder, servers) for name in sides}
    made = {name: _made(side, addresses[name], servers) for name, side in sides.items()}
    # The workers are gone: nobody makes what is enqueued now.
    asked = _asked({name: side.command(addresses[name], "client") for name, side in sides.items()})
    return {name: Cost(asked[name], made[name]) for name in sides}


def _address(column: str, folder: Path, servers: Servers) -> str:
    """Of an empty database."""
    if column == POSTGRES:
        return servers.settings(POSTGRES)["BAOBAB_DATABASE_URL"]
    return f"sqlite:///{tempfile.mkdtemp(dir=folder)}/rows.db"


def _asked(commands: dict[str, list[str]]) -> dict[str, Asked]:
    """The least of several rounds, in which the sides take turns: the machine's other work only ever adds."""
    bare: dict[str, list[Asked]] = {name: [] for name in commands}
    asked: dict[str, list[Asked]] = {name: [] for name in commands}
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(_Process.of(command)) for name, command in commands.items()}
        for client in clients.values():
            client.commit(20, 1)
        for _ in range(_ROUNDS):
            for name, client in clients.items():
                bare[name].append(Asked.of(client.commit(_TRANSACTIONS, 0)))
                asked[name].append(Asked.of(client.commit(_TRANSACTIONS, 1)))
    return {name: _least(asked[name]) - _least(bare[name]) for name in commands}


def _least(found: list[Asked]) -> Asked:
    return Asked(min(one.cpu for one in found), min(one.seconds for one in found))


def _made(side: Side, url: str, servers: Servers) -> Made:
    # The worker first: it makes the tables.
    with _Process.of(side.command(url, "worker")) as worker, _Process.of(side.command(url, "client")) as client:
        for process in (worker, client):
            process.commit(20, 1)
        worker.drained(40)
        time.sleep(2)
        began, stores_began = worker.cpu(), servers.cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        idle, idle_stores = worker.cpu() - began, servers.cpu_seconds() - stores_began
        here, elsewhere = _latency(worker, worker), _latency(client, worker)
        backlogs = [_backlog(client, worker, servers) for _ in range(2)]
        size = worker.ask("size")
    return Made(
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


def _backlog(client: "_Process", worker: "_Process", servers: Servers) -> tuple[float, float, float]:
    """CPU seconds of the worker and of the servers, and seconds to the start of the last job."""
    began, stores_began = worker.cpu(), servers.cpu_seconds()
    committed = client.commit(1, _BACKLOG)["committed"][0]
    ended = max(worker.drained(_BACKLOG))
    # The last ones are still to be written down as done.
    time.sleep(1)
    return worker.cpu() - began, servers.cpu_seconds() - stores_began, ended - committed


def _latency(asking: "_Process", worker: "_Process") -> tuple[float, float]:
    """Jobs that are asked for one by one, and begin in the order in which they were."""
    committed = asking.commit(_ALONE, 1, _GAP)["committed"]
    waits = sorted(began - at for at, began in zip(committed, worker.drained(_ALONE), strict=True))
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


class _Process:
    """One that obeys lines (job_process.py)."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._read()

    @classmethod
    @contextlib.contextmanager
    def of(cls, command: list[str]) -> Iterator["_Process"]:
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
        return self._read()

    def commit(self, count: int, enqueued: int, gap: float = 0.0) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask(f"commit {count} {enqueued} {gap}")
        return answer

    def drained(self, count: int) -> list[float]:
        """When so many jobs began; all that was asked for must have."""
        found: list[float] = []
        deadline = time.monotonic() + _PATIENCE
        while len(found) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(found)} of {count} jobs have begun")
            time.sleep(0.3)
            found += self.ask("starts")
        if len(found) > count:
            raise RuntimeError(f"{len(found)} jobs have begun, of {count} that were asked for")
        return sorted(found)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process ended")
        return json.loads(line)


def _dbos_sides() -> dict[str, Side]:
    """DBOS at two paces of polling: the pace is its least start latency, and its cost when there is nothing to do."""
    try:
        python = python_of(DBOS)
    except subprocess.CalledProcessError:
        print(f"DBOS {DBOS.version} cannot be installed here; ours stands alone.", flush=True)
        return {}
    module = "tests.bench.peers.dbos_jobs"
    return {f"DBOS, {pace} s": Side(str(python), module, (pace,)) for pace in ("0.1", "0.02")}


_ROWS: list[tuple[str, Callable[[Cost], str]]] = [
    ("enqueue, CPU us", lambda cost: f"{cost.asked.cpu * 1e6:.0f}"),
    ("enqueue, us", lambda cost: f"{cost.asked.seconds * 1e6:.0f}"),
    ("start in this process, ms", lambda cost: _both(cost.made.here)),
    ("start in another, ms", lambda cost: _both(cost.made.elsewhere)),
    ("a job of many, CPU us", lambda cost: f"{cost.made.job_cpu * 1e6:.0f}"),
    ("  in the database server", lambda cost: f"{cost.made.job_stores * 1e6:.0f}"),
    ("jobs a second", lambda cost: f"{cost.made.per_second:.0f}"),
    ("idle, CPU s a minute", lambda cost: f"{cost.made.idle_cpu:.2f}"),
    ("  in the database server", lambda cost: f"{cost.made.idle_stores:.2f}"),
    ("threads", lambda cost: str(cost.made.threads)),
    ("megabytes", lambda cost: f"{cost.made.megabytes:.0f}"),
]


def _both(waits: tuple[float, float]) -> str:
    return f"{waits[0] * 1e3:.1f} / {waits[1] * 1e3:.1f}"


def report(costs: Costs) -> Iterator[str]:
    yield f"durable jobs, {_AT_ONCE} at once; starts: median / 99th percentile of {_ALONE}"
    for column, sides in costs.items():
        yield ""
        yield f"{column:28}" + "".join(f"{side:>16}" for side in sides)
        for name, shown in _ROWS:
            yield f"{name:28}" + "".join(f"{shown(cost):>16}" for cost in sides.values())
