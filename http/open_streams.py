"""Limits how many event streams may be open, and closes a stream whose reader loses access."""

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
"""Streams send something every 15 seconds, so that access is checked again within 30."""


@dataclass(frozen=True)
class StreamLimits:
    """The most streams that may be open in a worker: in all, of one subject such as a run, and of one caller (without a
    credential: of one network).
    """

    in_all: int = 2000
    of_subject: int = 64
    of_caller: int = 32


class OpenStreams:
    """Counts the open streams of one worker."""

    def __init__(self, limits: StreamLimits | None = None) -> None:
        self._limits = limits or StreamLimits()
        self._open: Counter[tuple[str, str]] = Counter()

    @contextlib.contextmanager
    def hold_place(self, caller: Caller, address: str, subject: str) -> Iterator[None]:
        """Counts a stream while it is open. Raises TooManyStreams."""
        limits = self._limits
        owner = network(address) if isinstance(caller, Anonymous) else caller.actor_id or ""
        places = {("all", ""): limits.in_all, ("run", subject): limits.of_subject, ("caller", owner): limits.of_caller}
        for key, limit in places.items():
            if self._open[key] >= limit:
                raise TooManyStreams(details={"limit": limit, "of": key[0]})
        self._open.update(places.keys())
        try:
            yield
        finally:
            self._open.subtract(places.keys())
            for key in places:
                if not self._open[key]:
                    del self._open[key]


async def stream_while_allowed(
    pieces: AsyncGenerator[bytes, None], check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[bytes, None]:
    """Yields the pieces until `check` raises. It is called before a piece if the last check is long enough ago."""
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if loop.time() - checked_at >= RECHECK_SECONDS:
                try:
                    await check()
                except (BaobabError, DatabaseUnavailable):
                    # Also end it if the check itself fails: the client can connect again.
                    return
                checked_at = loop.time()
            yield piece
