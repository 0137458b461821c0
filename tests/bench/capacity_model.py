"""What an installation of so many workers and processors does: a discrete model of runs of agents.

A run is so many turns between a worker, which does one thing at a time, and the database. Both need a processor while
they work, and so do those who start the runs, where they share the machine.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

_TURNS = 12
"""Transactions of a run: that often it waits for the database."""


class Cost(NamedTuple):
    """Seconds of CPU that one run costs."""

    worker: float
    database: float
    caller: float = 0.0


class _Station:
    """So many that work at the same time, first come, first served."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.waiting: deque[Callable[[], None]] = deque()


Step = tuple[_Station | None, bool, float]
"""A station to take (or to leave), and seconds to work; without a station, only time passes."""


@dataclass
class Machine:
    """One simulation: runs are generators of steps, and time jumps from one event to the next."""

    workers: int
    processors: int
    seed: int = 1

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._workers = [_Station(1) for _ in range(self.workers)]
        self._processors = _Station(self.processors)

    def measure_batch(self, cost: Cost, runs: int, callers: int) -> float:
        """Runs a second when callers start so many, each the next one as soon as the last is accepted."""
        runs_left, last_end = [runs], [0.0]

        def call() -> None:
            if runs_left[0]:
                runs_left[0] -= 1
                self._start(self._steps_of_start(cost), accept)

        def accept() -> None:
            call()
            self._start(self._steps_of_run(cost), end)

        def end() -> None:
            last_end[0] = self._now

        for _ in range(callers):
            call()
        self._run_events()
        return runs / last_end[0]

    def measure_latency(self, cost: Cost, runs: int, rate: float) -> tuple[float, float]:
        """Median and 95th percentile of the seconds that runs take which begin at random, so many a second."""
        took: list[float] = []

        def arrive(began: float) -> None:
            self._start(self._steps_of_run(cost, whole=True), lambda: took.append(self._now - began))

        at = 0.0
        for _ in range(runs):
            at += self._dice.expovariate(rate)
            self._schedule(at, partial(arrive, at))
        self._run_events()
        took.sort()
        return took[len(took) // 2], took[len(took) * 95 // 100]

    def _steps_of_start(self, cost: Cost) -> Generator[Step, None, None]:
        """The request that starts a run: a third of what the run costs."""
        yield from self._work(None, cost.caller)
        yield from self._share(cost, _TURNS // 3)

    def _steps_of_run(self, cost: Cost, *, whole: bool = False) -> Generator[Step, None, None]:
        yield from self._share(cost, _TURNS if whole else _TURNS - _TURNS // 3)

    def _share(self, cost: Cost, turns: int) -> Generator[Step, None, None]:
        worker = self._dice.choice(self._workers)
        for _ in range(turns):
            yield from self._work(worker, cost.worker / _TURNS)
            yield from self._work(None, cost.database / _TURNS)

    def _work(self, worker: _Station | None, seconds: float) -> Generator[Step, None, None]:
        stations = [self._processors] if worker is None else [worker, self._processors]
        for station in stations:
            yield station, True, 0.0
        yield None, True, self._dice.expovariate(1 / seconds) if seconds else 0.0
        for station in stations:
            yield station, False, 0.0

    def _start(self, steps: Generator[Step, None, None], callback: Callable[[], object]) -> None:
        def advance() -> None:
            for station, takes, seconds in steps:
                if station is None:
                    self._schedule(self._now + seconds, advance)
                    return
                if not takes:
                    if station.waiting:
                        self._schedule(self._now, station.waiting.popleft())
                    else:
                        station.free += 1
                elif station.free:
                    station.free -= 1
                else:
                    station.waiting.append(advance)
                    return
            callback()

        advance()

    def _schedule(self, at: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, action))

    def _run_events(self) -> None:
        while self._events:
            self._now, _, action = heapq.heappop(self._events)
            action()


class Need(NamedTuple):
    """The processors and disk that so many runs a day need."""

    peak: float
    """Runs a second in the busiest hour."""
    workers: int
    processors: int
    """Of the database."""
    connections: int
    stored_bytes: float
    """Bytes of finished runs, while they are kept."""
    cells: int


PEAK, USE = 3.0, 0.6
"""The busiest hour against the mean; how busy a processor may be then."""
CONNECTIONS_OF_WORKER = 8
CELL_PROCESSORS, CELL_BYTES = 32, 8e12
"""What the database of one cell has at the most: a large server that everybody can rent."""


def plan(cost: Cost, bytes_of_run: float, runs_of_day: float, kept_days: float) -> Need:
    peak = runs_of_day / 86_400 * PEAK
    workers = max(1, math.ceil(peak * cost.worker / USE))
    processors = max(1, math.ceil(peak * cost.database / USE))
    stored_bytes = runs_of_day * kept_days * bytes_of_run
    cells = max(1, math.ceil(processors / CELL_PROCESSORS), math.ceil(stored_bytes / CELL_BYTES))
    return Need(peak, workers, processors, workers * CONNECTIONS_OF_WORKER, stored_bytes, cells)
