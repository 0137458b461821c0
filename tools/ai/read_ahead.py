"""A buffer of pieces that one task reads ahead of another; much cheaper than a queue for streams of tokens."""

import asyncio

BEAT_SECONDS = 10.0
"""After so long without a piece a beat is sent, so that the connection is not taken for dead."""


class ReadAheadBuffer:
    """A bounded buffer between one task that puts pieces and one that takes them, in order.

    most, most_bytes: the pieces, and the bytes, at which the buffer is full; the writer then waits for room. beat: the
    piece that is put after ten seconds without one; empty for none.
    """

    def __init__(self, most: int, most_bytes: int, beat: bytes = b"") -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._size = 0
        self._pieces: list[bytes] = []
        self._is_ended = False
        self._arrival: asyncio.Future[None] | None = None
        self._departure: asyncio.Future[None] | None = None
        self._beat = beat
        self._is_quiet = True
        # One timer for the whole stream, because one for each piece would cost as much as the piece.
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._tick) if beat else None

    @property
    def is_full(self) -> bool:
        return len(self._pieces) >= self._most or self._size >= self._most_bytes

    def put(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        self._is_quiet = False
        _wake(self._arrival)

    def end(self) -> None:
        """Marks the end of the pieces."""
        self._is_ended = True
        if self._timer is not None:
            self._timer.cancel()
        _wake(self._arrival)

    async def wait_for_room(self) -> None:
        """Waits until the reader has taken something."""
        self._departure = asyncio.get_running_loop().create_future()
        await self._departure

    async def take(self) -> bytes | None:
        """Waits for pieces and returns all of them joined; None at the end."""
        while not self._pieces:
            if self._is_ended:
                return None
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        pieces, self._pieces, self._size = self._pieces, [], 0
        _wake(self._departure)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _tick(self) -> None:
        if self._is_quiet and not self._pieces:
            self.put(self._beat)
        self._is_quiet = True
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._tick)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
