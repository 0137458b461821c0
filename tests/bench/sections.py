"""The sections of `make bench`, by name: what each measures, and how its figures are printed."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench import (
    agents,
    auth,
    backends,
    bombs,
    capacity,
    console,
    data,
    data_peers,
    data_subscribers,
    functions,
    gateway,
    half_cores,
    hidden_rows,
    jobs,
    kv_engine,
    mcp_endpoint,
    memory,
    rag,
    rest,
    rows,
    scale,
    start,
    stores,
    triggers,
    workers,
)
from tests.bench.backends import Servers


@dataclass(frozen=True)
class Section:
    """run: measures, and may be a coroutine function. report: renders what it returns. on_servers: whether it runs on
    database servers, which `run` is then given.
    """

    run: Callable[..., Any]
    report: Callable[[Any], Iterable[str] | str]
    on_servers: bool = False

    def measure(self, servers: Servers | None) -> Iterator[str]:
        """Measures, and yields the lines of the report, as soon as there are any."""
        result = self.run(servers) if self.on_servers else self.run()
        lines = self.report(asyncio.run(result) if inspect.iscoroutine(result) else result)
        yield from [lines] if isinstance(lines, str) else lines


def _side_by_side(module: Any) -> Section:
    return Section(module.run, module.report, on_servers=True)


def _alone(module: Any) -> Section:
    return Section(module.run, module.report)


SECTIONS: Mapping[str, tuple[Section, ...]] = {
    "start": (_alone(start),),
    "engine": (_alone(kv_engine),),
    "rest": (_alone(rest),),
    "mcp": (_alone(mcp_endpoint),),
    "gateway": (_alone(gateway),),
    "functions": (_alone(functions),),
    "bombs": (_alone(bombs),),
    "memory": (_alone(memory),),
    "rag": (_alone(rag),),
    "leaks": (Section(hidden_rows.find_leaks, hidden_rows.report_leaks),),
    "fairness": (Section(hidden_rows.find_delays, hidden_rows.report_delays),),
    "data": (_alone(data), _alone(data_subscribers), _side_by_side(data_peers)),
    "console": (_alone(console),),
    "triggers": (_alone(triggers),),
    "stores": (_side_by_side(stores),),
    "rows": (_side_by_side(rows),),
    "scale": (_side_by_side(scale),),
    "workers": (_side_by_side(workers),),
    "jobs": (_side_by_side(jobs),),
    "agents": (_side_by_side(agents),),
    "half-cores": (_side_by_side(half_cores),),
    "capacity": (_side_by_side(capacity),),
    "auth": (_side_by_side(auth),),
}
"""In the order in which they are measured. The database servers are started once, for all that run on them."""


class UnknownSectionError(Exception):
    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(f"unknown: {', '.join(sorted(names))}. The sections are: {', '.join(SECTIONS)}")


def measure(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Measures sections, all if none is named. Yields the name of the section with each line of its report.

    Raises UnknownSectionError before anything is measured.
    """
    chosen_names = set(names)
    if unknown_names := chosen_names - SECTIONS.keys():
        raise UnknownSectionError(unknown_names)
    parts = [
        (name, part) for name, parts in SECTIONS.items() if name in chosen_names or not chosen_names for part in parts
    ]
    yield from _measure_parts([each for each in parts if not each[1].on_servers], None)
    if on_servers := [each for each in parts if each[1].on_servers]:
        with backends.start_servers() as servers:
            yield from _measure_parts(on_servers, servers)


def _measure_parts(parts: Iterable[tuple[str, Section]], servers: Servers | None) -> Iterator[tuple[str, str]]:
    for name, part in parts:
        for line in part.measure(servers):
            yield name, line
