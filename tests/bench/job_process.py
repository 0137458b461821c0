"""A process that keeps jobs and is measured from outside: told what to do by lines, it answers each by a line of JSON.

It stands on the standard library alone: interpreters of other environments run it too.
"""

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol


class JobQueue(Protocol):
    """The interface of a job queue that is measured."""

    async def write(self, job_count: int) -> None:
        """Commit one transaction: a row of the caller's own, and so many jobs."""


class StartTimes:
    """When jobs began, in seconds of the clock that all processes of the machine share."""

    def __init__(self) -> None:
        self._instants: list[float] = []

    def note(self) -> None:
        self._instants.append(time.monotonic())

    def take(self) -> list[float]:
        instants, self._instants = self._instants, []
        return instants


async def serve_commands(jobs: JobQueue, starts: StartTimes, **first: float) -> None:
    """Answer lines until there are no more of them.

    `commit COUNT ENQUEUED GAP`: so many transactions of so many jobs each, so many seconds apart; when each was
    committed, and the CPU seconds and the seconds that one took.
    `starts`: when jobs began since this was last asked. `size`: its threads and megabytes of memory.
    """
    _write_answer({**measure_process(), **first})
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *arguments = line.split()
        if command == "commit":
            count, job_count, gap = arguments
            _write_answer(await _commit_transactions(jobs, int(count), int(job_count), float(gap)))
        elif command == "starts":
            _write_answer(starts.take())
        elif command == "size":
            _write_answer(measure_process())
        else:
            raise ValueError(line)


async def _commit_transactions(jobs: JobQueue, count: int, job_count: int, gap: float) -> dict[str, Any]:
    commit_times, cpu, seconds = [], 0.0, 0.0
    for _ in range(count):
        await asyncio.sleep(gap)
        began, cpu_began = time.monotonic(), time.process_time()
        await jobs.write(job_count)
        commit_times.append(time.monotonic())
        cpu += time.process_time() - cpu_began
        seconds += commit_times[-1] - began
    return {"committed": commit_times, "cpu": cpu / count, "seconds": seconds / count}


def _write_answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def measure_process() -> dict[str, float]:
    """How many threads the process has, and megabytes of memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"threads": threading.active_count(), "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 1e6}
