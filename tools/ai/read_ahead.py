"""Pieces that one task reads ahead of another that takes them. A queue that costs a token's stream next to nothing."""

import asyncio

BEAT_SECONDS = 10.0
"""After so long without a piece, something is sent that keeps the connection from being taken for a dead one."""


class ReadAheadBuffer:
    """In order, so many at the most: whoever puts one more than that first waits for room. One puts, one takes.

    most, most_bytes: of what is held before somebody waits. beat: what is put when nothing has come for ten seconds;
    empty for nothing.
    """

    def __init__(self, most: int, most_bytes: int, beat: bytes = b"") -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._size = 0
        self._held: list[bytes] = []
        self._ended = False
        self._come: asyncio.Future[None] | None = None
        self._left: asyncio.Future[None] | None = None
        self._beat = beat
        self._is_quiet = True
        # One timer for all of a stream: to set one for each piece would cost as much as the piece does.
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._tick) if beat else None

    @property
    def is_full(self) -> bool:
        return len(self._held) >= self._most or self._size >= self._most_bytes

    def put(self, piece: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        self._is_quiet = False
        _wake(self._come)

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        _wake(self._come)

    async def wait_for_room(self) -> None:
        """Returns when something was taken."""
        self._left = asyncio.get_running_loop().create_future()
        await self._left

    async def take(self) -> bytes | None:
        """All that is there, or what comes next, in one piece; None at the end."""
        while not self._held:
            if self._ended:
                return None
            self._come = asyncio.get_running_loop().create_future()
            await self._come
        held, self._held, self._size = self._held, [], 0
        _wake(self._left)
        return held[0] if len(held) == 1 else b"".join(held)

    def _tick(self) -> None:
        if self._is_quiet and not self._held:
            self.put(self._beat)
        self._is_quiet = True
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._tick)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
