"""Waits for the first event of a stream, because a failure before it can be retried with another upstream."""

import asyncio
from collections.abc import AsyncGenerator

from baobab.runtime.gateway.usage_meter import UsageMeter

_FIRST_SECONDS = 2.0
"""How long the stream is held back for its first event; a caller's disconnection is not noticed meanwhile."""


async def wait_for_first_event(pieces: AsyncGenerator[bytes, None], meter: UsageMeter) -> AsyncGenerator[bytes, None]:
    """Returns the same pieces once the first event has arrived; raises a failure before it, so it can be retried."""
    clock = asyncio.get_running_loop().time
    until = clock() + _FIRST_SECONDS
    received_pieces: list[bytes] = []
    # The clock bounds the loop too, because comments may arrive for ever.
    while not meter.has_begun and clock() < until:
        next_piece = asyncio.create_task(_read_next(pieces))
        try:
            finished_tasks, _ = await asyncio.wait((next_piece,), timeout=max(0.0, until - clock()))
        except asyncio.CancelledError:
            next_piece.cancel()
            raise
        if not finished_tasks:
            return _resume_stream(received_pieces, next_piece, pieces)
        piece = next_piece.result()
        if piece is None:
            break
        received_pieces.append(piece)
    return _resume_stream(received_pieces, None, pieces)


async def _read_next(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)


async def _resume_stream(
    received_pieces: list[bytes], coming: asyncio.Task[bytes | None] | None, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    try:
        for piece in received_pieces:
            yield piece
        if coming is not None:
            late = await coming
            if late is not None:
                yield late
        async for piece in pieces:
            yield piece
    finally:
        if coming is not None and not coming.done():
            coming.cancel()
            await asyncio.wait((coming,))
        await pieces.aclose()
