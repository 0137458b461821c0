"""Rows written a second on Postgres by 1, 2 and 4 processes, over 64 apps and all for one app.

Each transaction does what a usual call does: it takes the lock of its app, reads, writes a row and waits for the disk.
The processes, their callers and the server share one machine.
"""

import subprocess
import sys
from collections.abc import Iterator

from tests.bench.backends import POSTGRES, Servers

PROCESSES = (1, 2, 4)
APPS = (64, 1)
_ROUNDS = 3

Rates = dict[tuple[int, int], float]
"""Commits a second, by the number of processes and of apps."""


def run(servers: Servers) -> Rates:
    url = servers.settings(POSTGRES)["BAOBAB_DATABASE_URL"]
    _start_writers(url, 1, 1, "migrate")
    rounds = [
        {(processes, apps): _measure(url, processes, apps) for processes in PROCESSES for apps in APPS}
        for _ in range(_ROUNDS)
    ]
    return {key: max(one[key] for one in rounds) for key in rounds[0]}


def _measure(url: str, processes: int, apps: int) -> float:
    return sum(float(line) for line in _start_writers(url, processes, apps, "write"))


def _start_writers(url: str, processes: int, apps: int, what: str) -> list[str]:
    """Starts writers, has them begin together when all are ready, and returns what they print."""
    command = [sys.executable, "-m", "tests.bench.row_writer", url, str(apps), what]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    answers = [_begin(writer) for writer in writers]
    return [answer.communicate()[0] for answer in answers]


def _begin(writer: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
    assert writer.stdin is not None
    writer.stdin.write("\n")
    writer.stdin.flush()
    return writer


def report(rates: Rates) -> Iterator[str]:
    yield "rows written a second on Postgres, 16 callers in each process"
    yield f"{'processes':>10}{'64 apps':>12}{'one app':>12}{'64 apps / one':>16}{'of one process':>16}"
    for processes in PROCESSES:
        many, one = (rates[processes, apps] for apps in APPS)
        yield f"{processes:10}{many:12.0f}{one:12.0f}{many / one:16.2f}{many / rates[1, APPS[0]]:16.2f}"
