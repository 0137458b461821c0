"""The beginning of a stream: what fails before its first event can be tried again, elsewhere."""

import asyncio
from collections.abc import AsyncGenerator

from baobab.runtime.gateway.outcome import Outcome

_FIRST_SECONDS = 2.0
"""How long a first event keeps a stream from being passed on: whoever leaves meanwhile is not seen to leave."""


async def begun(pieces: AsyncGenerator[bytes, None], outcome: Outcome) -> AsyncGenerator[bytes, None]:
    """The same pieces, when the first event is there: what fails before it is raised, to be tried elsewhere."""
    clock = asyncio.get_running_loop().time
    until = clock() + _FIRST_SECONDS
    held: list[bytes] = []
    # By the clock too: comments may come for ever, each of them at once.
    while not outcome.begun and clock() < until:
        coming = asyncio.create_task(_next(pieces))
        try:
            there, _ = await asyncio.wait((coming,), timeout=max(0.0, until - clock()))
        except asyncio.CancelledError:
            coming.cancel()
            raise
        if not there:
            return _resumed(held, coming, pieces)
        piece = coming.result()
        if piece is None:
            break
        held.append(piece)
    return _resumed(held, None, pieces)


async def _next(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)


async def _resumed(
    held: list[bytes], coming: asyncio.Task[bytes | None] | None, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    try:
        for piece in held:
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
