"""Streams of events that are open: how many there may be, and whether each may go on."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from baobab.storage.database import DatabaseUnavailable
from baobab.tools.core.auth.callers import Anonymous, Caller
from baobab.tools.core.errors import BaobabError, TooManyStreams
from baobab.tools.core.rate_limits import network

RECHECK_SECONDS = 14.0
"""Streams say something every 15 seconds, so that each is looked at again within 30."""


@dataclass(frozen=True)
class StreamLimits:
    """Open streams of a worker: in all, of one subject such as a run, and of one caller (strangers: one address)."""

    in_all: int = 2000
    of_subject: int = 64
    of_caller: int = 32


class OpenStreams:
    """Those of one worker."""

    def __init__(self, limits: StreamLimits | None = None) -> None:
        self._limits = limits or StreamLimits()
        self._open: Counter[tuple[str, str]] = Counter()

    @contextlib.contextmanager
    def hold_place(self, caller: Caller, address: str, subject: str) -> Iterator[None]:
        """A place for one stream while it is open; TooManyStreams."""
        limits = self._limits
        whose = network(address) if isinstance(caller, Anonymous) else caller.actor_id or ""
        taken = {("all", ""): limits.in_all, ("run", subject): limits.of_subject, ("caller", whose): limits.of_caller}
        for key, limit in taken.items():
            if self._open[key] >= limit:
                raise TooManyStreams(details={"limit": limit, "of": key[0]})
        self._open.update(taken.keys())
        try:
            yield
        finally:
            self._open.subtract(taken.keys())
            for key in taken:
                if not self._open[key]:
                    del self._open[key]


async def stream_while_allowed(
    pieces: AsyncGenerator[bytes, None], check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[bytes, None]:
    """The pieces, for as long as `check` does not raise: it is asked before a piece that comes long after the last."""
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if loop.time() - checked_at >= RECHECK_SECONDS:
                try:
                    await check()
                except (BaobabError, DatabaseUnavailable):
                    # A client that is sent away for nothing comes again; one that is let on has no end.
                    return
                checked_at = loop.time()
            yield piece
