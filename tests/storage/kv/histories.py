"""Whether what callers were told, all at the same time, can have happened one after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from baobab.storage.kv.errors import StoreUnavailable

# What one key holds: bytes, or None where it is absent.
State = bytes | None


@dataclass
class Event:
    """`answer` is not known, and the end is never, where the store said that it was unavailable."""

    key: str
    name: str
    arguments: tuple[Any, ...]
    start: float
    end: float = math.inf
    answer: object = None

    def apply(self, state: State) -> tuple[object, State]:
        """Returns what a single store would answer, and its contents afterwards."""
        match self.name, self.arguments:
            case "put", (value,):
                return None, value
            case "setnx", (value,):
                return state is None, value if state is None else state
            case "cas", (expected, value):
                return state == expected, value if state == expected else state
            case "delete", ():
                return int(state is not None), None
            case "incr", ():
                total = int(state or b"0") + 1
                return total, b"%d" % total
        return state, state


@dataclass
class History:
    events: list[Event] = field(default_factory=list)
    _times: itertools.count[int] = field(default_factory=itertools.count)

    async def record(self, ask: Callable[[], Awaitable[object]], key: str, name: str, *arguments: Any) -> object:
        event = Event(key, name, arguments, next(self._times))
        self.events.append(event)
        try:
            event.answer = await ask()
        except StoreUnavailable:
            return None
        event.end = next(self._times)
        return event.answer

    def check(self) -> None:
        """Raises AssertionError unless each key has an order of its events that agrees with all answers."""
        for key in {event.key for event in self.events}:
            events = sorted((event for event in self.events if event.key == key), key=lambda event: event.start)
            assert _has_order(events), "\n".join(map(repr, events))


def _has_order(events: list[Event]) -> bool:
    """Wing and Gong's search: whatever began before the first end may be next."""
    seen_states: set[tuple[int, State]] = set()
    todo: list[tuple[int, State]] = [(0, None)]
    while todo:
        done_bits, state = todo.pop()
        if (done_bits, state) in seen_states:
            continue
        seen_states.add((done_bits, state))
        remaining_events = [(1 << at, event) for at, event in enumerate(events) if not done_bits & 1 << at]
        first_end = min((event.end for _, event in remaining_events), default=math.inf)
        if first_end == math.inf:
            # Of those left nobody has heard anything.
            return True
        for bit, event in remaining_events:
            if event.start < first_end:
                answer, following = event.apply(state)
                if event.end == math.inf or answer == event.answer:
                    todo.append((done_bits | bit, following))
    return False
