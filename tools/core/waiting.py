"""Waiting for work that goes on after a call: in short reads, which hold neither a transaction nor a connection."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

MOST_SECONDS = 55
WAIT = "wait_seconds"
"""The argument of tools whose work can be waited for."""
WaitSeconds = Annotated[int, Field(default=0, ge=0, le=MOST_SECONDS, description="Wait so long for the end.")]
DOORS = frozenset({"mcp", "rest"})
"""Interfaces that may wait. A run of an agent holds a slot in which it must not, and has nodes that wait."""
_MOST_OF_ONE, _MOST_OF_TENANT, _MOST = 4, 16, 400
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Waits:
    """What a call with `wait_seconds` waits for.

    is_over: whether the work has ended or waits for a person, by the answer of the tool that reads its state.
    reads: the name of that tool; None if it is the tool itself, which then answers the last state.
    find: returns its arguments beside those of the same name, by the result of the call that has started the work.
    answer: returns what the call answers, by its result and the last state; None if that is the last state.
    """

    is_over: Callable[[Any], bool]
    reads: str | None = None
    find: Callable[[Any], Mapping[str, Any]] | None = None
    answer: Callable[[Any, Any], Any] | None = None


class WaitingRoom:
    """Counts the calls that wait, so that one caller or tenant leaves room for others."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @contextmanager
    def hold_place(self, caller: str, tenant: str) -> Iterator[bool]:
        """Holds a place while the context is open; yields False if there is none."""
        places = (("caller " + caller, _MOST_OF_ONE), ("tenant " + tenant, _MOST_OF_TENANT), ("", _MOST))
        if any(self._counts[name] >= most for name, most in places):
            yield False
            return
        self._counts.update(name for name, _ in places)
        try:
            yield True
        finally:
            self._counts.subtract(name for name, _ in places)
            self._counts = +self._counts


def build_pauses() -> Iterator[float]:
    """Yields the seconds between two reads: short ones first, because much work ends soon."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def pause_or_leave(leaving: "asyncio.Task[None] | None", seconds: float) -> bool:
    """Waits for some seconds; returns at once, and True, when the client has left."""
    if leaving is None:
        await asyncio.sleep(seconds)
        return False
    return bool((await asyncio.wait({leaving}, timeout=seconds))[0])
