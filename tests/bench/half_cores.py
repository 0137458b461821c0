"""Two workers against one on four processors, which this machine makes of two: each takes half of one.

A control group of Linux gives each worker half a processor, and two halves to Postgres and the callers together. Nobody
gets what another leaves. So one worker has beside it all that two have, and the machine must have two whole processors
to give.
"""

import contextlib
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.bench.agents import Installation, run_many, start_installation
from tests.bench.backends import POSTGRES, Servers
from tests.bench.processes import cpu_by_process, cpu_seconds

_ROOT = Path("/sys/fs/cgroup/cpu")
_PERIOD_MICROSECONDS = 10_000
_WORKERS = (1, 2)
_ROUNDS, _RUNS, _WARM = 7, 400, 60


class Round(NamedTuple):
    per_second: float
    used_shares: list[float]
    """The share of its half that each worker used, and then of two halves Postgres and the callers."""


class Found(NamedTuple):
    rounds: dict[int, list[Round]]
    """By the number of workers, in the order in which they took turns."""
    loads: tuple[float, float]
    """The machine's load average at the beginning and at the end."""


class _Halves:
    """Halves of processors for some processes and all that they start."""

    def __init__(self, name: str, count: int) -> None:
        self._folder = _ROOT / f"baobab-bench-{os.getpid()}-{name}"
        self._folder.mkdir()
        (self._folder / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
        (self._folder / "cpu.cfs_quota_us").write_text(str(_PERIOD_MICROSECONDS // 2 * count))

    def take(self, *pids: int) -> None:
        for pid in pids:
            # A session of Postgres may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                (self._folder / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Gives its processes back to the whole machine."""
        while pids := (self._folder / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (_ROOT / "cgroup.procs").write_text(pid)
        self._folder.rmdir()


def run(servers: Servers) -> Found | str:
    """Returns why it cannot be measured if it cannot."""
    try:
        with contextlib.closing(_Halves("probe", 1)):
            pass
    except OSError as exc:
        return f"{_ROOT} takes no group of ours ({exc.strerror}): it needs root and control groups of version 1"
    return uvloop.run(_measure(servers))


async def _measure(servers: Servers) -> Found:
    began = os.getloadavg()[0]
    async with contextlib.AsyncExitStack() as stack:
        installations: dict[int, Installation] = {}
        for workers in _WORKERS:
            starting = start_installation(servers.settings(POSTGRES), workers)
            installations[workers] = await stack.enter_async_context(starting)
            await run_many(installations[workers], "warm", _WARM * workers)
        others = stack.enter_context(contextlib.closing(_Halves("others", 2)))
        others.take(os.getpid(), *_list_servers(servers))
        pids = {workers: _list_workers(here.pids[0], workers) for workers, here in installations.items()}
        for pid in [pid for members in pids.values() for pid in members]:
            stack.enter_context(contextlib.closing(_Halves(f"worker-{pid}", 1))).take(pid)
        rounds: dict[int, list[Round]] = {workers: [] for workers in _WORKERS}
        for number in range(_ROUNDS):
            for workers, here in installations.items():
                rounds[workers].append(await _measure_round(servers, here, f"round {number}", pids[workers]))
    return Found(rounds, (began, os.getloadavg()[0]))


async def _measure_round(servers: Servers, here: Installation, prefix: str, pids: list[int]) -> Round:
    def read_cpu() -> list[float]:
        own_times = os.times()
        others = [servers.cpu_seconds(), own_times.user + own_times.system]
        return [*[cpu_seconds(pid) for pid in pids], *[seconds / 2 for seconds in others]]

    before = read_cpu()
    per_second = await run_many(here, prefix, _RUNS)
    seconds = _RUNS / per_second
    return Round(per_second, [(now - then) / seconds * 2 for then, now in zip(before, read_cpu(), strict=True)])


def _list_servers(servers: Servers) -> list[int]:
    assert servers.postgres.process is not None
    return [*cpu_by_process(servers.postgres.process.pid)]


def _list_workers(pid: int, workers: int) -> list[int]:
    """Returns the processes that answer requests: those that have worked most."""
    cpu_by_pid = cpu_by_process(pid)
    return sorted(cpu_by_pid, key=lambda member: cpu_by_pid[member])[-workers:]


def report(figures: Found | str) -> Iterator[str]:
    if isinstance(figures, str):
        yield f"two workers on four halves of processors: not measured. {figures}"
        return
    one, two = (figures.rounds[workers] for workers in _WORKERS)
    ratios = [ours.per_second / alone.per_second for alone, ours in zip(one, two, strict=True)]
    before, after = figures.loads
    yield f"runs of agents on halves of processors; load average {before:.1f} at the start, {after:.1f} at the end"
    yield f"{'':12}{'runs a second':>16}    used of each half: workers; of two halves: Postgres, callers"
    for workers, rounds in figures.rounds.items():
        rate = statistics.median(each.per_second for each in rounds)
        used_shares = [statistics.median(shares) for shares in zip(*[each.used_shares for each in rounds], strict=True)]
        label = f"{workers} worker{'s' * (workers > 1)}"
        yield f"{label:12}{rate:>16.0f}    {', '.join(f'{share:.2f}' for share in used_shares)}"
    yield f"two workers against one: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
