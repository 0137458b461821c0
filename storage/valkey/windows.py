"""Sliding windows that any number of processes share: at most `amount` is taken in any `seconds`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from baobab.storage.valkey.library import Library
from baobab.storage.valkey.pipeline import Pipeline

_CODE = Path(__file__).with_name("windows.lua")


class SpendResult(NamedTuple):
    remaining: int
    """What is left; negative if the request was refused, in which case nothing was taken."""
    wait: int
    """Whole seconds until something is free again; after a refusal, until the requested cost is free."""


class SlidingWindows:
    """Exact counts by one clock, the server's own, so that the clocks of processes need not agree. Tests pass
    another.
    """

    def __init__(self, pipeline: Pipeline, clock: Callable[[], float] | None = None) -> None:
        self._library = Library(pipeline, "windows", _CODE.read_text())
        self._clock = clock

    async def take(self, name: str, amount: int, seconds: int, cost: int) -> SpendResult:
        left_amount, wait = await self._library.call("spend", name, amount, seconds * 1_000_000, cost, self._now)
        return SpendResult(left_amount, math.ceil(wait / 1_000_000))

    async def count_used(self, name: str, seconds: int) -> int:
        count: int = await self._library.call("used", name, seconds * 1_000_000, self._now)
        return count

    @property
    def _now(self) -> int | str:
        return "" if self._clock is None else round(self._clock() * 1_000_000)
