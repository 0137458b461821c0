"""What pages of the console hear while they are open: that something which waits has changed."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial

from baobab.storage.notices import Notices
from baobab.tools.approvals.tables import NOTICE as APPROVALS
from baobab.tools.console.sessions import NOTICE

_BEAT_SECONDS = 15.0
_PAUSE_SECONDS = 0.2


class Changes:
    """Wakes the open pages of this process. One subscription serves all of them."""

    def __init__(self, notices: Notices) -> None:
        self._waiting: set[Callable[[str, str], None]] = set()
        for topic in (APPROVALS, NOTICE):
            notices.subscribe(topic, partial(self._tell, topic))

    def _tell(self, topic: str, subject: str) -> None:
        for listener in tuple(self._waiting):
            listener(topic, subject)

    async def follow(self, watch: "Watch") -> AsyncGenerator[bytes, None]:
        """Yields an event at each change, and a comment every 15 seconds, until the watch ends. It ends when a session
        of the account does: the page then asks again, and is told whether it was its own.
        """
        self._waiting.add(watch.listen)
        try:
            yield b"retry: 2000\n\n"
            while True:
                try:
                    await asyncio.wait_for(watch.changed.wait(), _BEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if not watch.ended:
                    # Many changes at once are one.
                    await asyncio.sleep(_PAUSE_SECONDS)
                watch.changed.clear()
                yield b"event: changed\ndata: {}\n\n"
                if watch.ended:
                    return
        finally:
            self._waiting.discard(watch.listen)


class Watch:
    """What one open page wants to hear of."""

    def __init__(self, organisations: frozenset[str], account_id: str) -> None:
        self._organisations = organisations
        self._account_id = account_id
        self.changed = asyncio.Event()
        self.ended = False

    def listen(self, topic: str, subject: str) -> None:
        if topic == NOTICE and subject == self._account_id:
            self.end()
        elif topic == APPROVALS and subject in self._organisations:
            self.changed.set()

    def end(self) -> None:
        self.ended = True
        self.changed.set()
