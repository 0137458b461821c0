"""Tells open pages of the console that a waiting item has changed, or that their session has ended."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from functools import partial

from baobab.storage.sql.notices import Notices
from baobab.tools.approvals.tables import NOTICE as APPROVALS
from baobab.tools.console.sessions import NOTICE

_BEAT_SECONDS = 15.0
_PAUSE_SECONDS, _LEAST_SECONDS = 0.2, 2.0
"""How long to wait for more changes, and the shortest time between two events. Each event makes the browser reload
the page.
"""


class Changes:
    """Wakes the open pages of this process. One subscription serves all of them."""

    def __init__(self, notices: Notices) -> None:
        self._waiting: set[Callable[[str, str], None]] = set()
        self._name, self._count = secrets.token_hex(4), 0
        for topic in (APPROVALS, NOTICE):
            notices.subscribe(topic, partial(self._tell, topic))

    @property
    def stamp(self) -> str:
        """Identifies the changes that this process has seen so far. Another process, or a later one, has different
        stamps.
        """
        return f"{self._name}-{self._count}"

    def _tell(self, topic: str, subject: str) -> None:
        self._count += topic == APPROVALS
        for listener in tuple(self._waiting):
            listener(topic, subject)

    async def follow(self, watch: "Watch", stamp_seen: str | None = None) -> AsyncGenerator[bytes, None]:
        """Yields an event at each change, and a comment every 15 seconds, until the watch ends. It ends when any
        session of the account ends: the page then asks again, and learns whether the session was its own.

        stamp_seen: the stamp from when the page was made. If it differs by now, an event is sent at once.
        """
        self._waiting.add(watch.listen)
        try:
            yield b"retry: 2000\n\n"
            if stamp_seen is not None and stamp_seen != self.stamp:
                watch.change_event.set()
            while True:
                try:
                    await asyncio.wait_for(watch.change_event.wait(), _BEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if not watch.has_ended:
                    # Many changes at once are one.
                    await asyncio.sleep(_PAUSE_SECONDS)
                watch.change_event.clear()
                yield b"event: changed\ndata: {}\n\n"
                if watch.has_ended:
                    return
                await watch.rest(_LEAST_SECONDS)
        finally:
            self._waiting.discard(watch.listen)


class Watch:
    """The changes that one open page is told about."""

    def __init__(self, organisations: frozenset[str], account_id: str) -> None:
        self._organisations = organisations
        self._account_id = account_id
        self.change_event = asyncio.Event()
        self._end = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        return self._end.is_set()

    def listen(self, topic: str, subject: str) -> None:
        if topic == NOTICE and subject == self._account_id:
            self.end()
        elif topic == APPROVALS and subject in self._organisations:
            self.change_event.set()

    def end(self) -> None:
        self._end.set()
        self.change_event.set()

    async def rest(self, seconds: float) -> None:
        """Waits for that many seconds, or until the watch ends."""
        try:
            await asyncio.wait_for(self._end.wait(), seconds)
        except TimeoutError:
            return
