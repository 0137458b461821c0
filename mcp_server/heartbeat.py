"""Sends progress notifications during a call, so that a waiting client does not take silence for a lost connection."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from baobab.tools.core.context import Report

_STEP_SECONDS = 2.0
_SMALL = 0.001


class Heartbeat:
    """Reports the seconds since the start, until the call reports its own progress; then repeats that."""

    def __init__(self, report: Report, name: str) -> None:
        self._report = report
        self._message = f"{name} is still running"
        self._done = 0.0
        self._total: float | None = None
        self._has_reported = False

    async def report(self, done: float, total: float | None, message: str | None) -> None:
        """Reports progress that the call itself has made."""
        self._has_reported, self._done, self._total = True, done, total
        self._message = message or self._message
        await self._report(done, total, message)

    @contextlib.asynccontextmanager
    async def keep_beating(self) -> AsyncIterator[None]:
        beating = asyncio.create_task(self._beat(), name="mcp heartbeat")
        try:
            yield
        finally:
            beating.cancel()
            # A client that has disconnected must not fail the call.
            await asyncio.gather(beating, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_STEP_SECONDS)
            # The protocol requires the progress to grow with each notification.
            self._done += _SMALL if self._has_reported else _STEP_SECONDS
            await self._report(self._done, self._total, self._message)
