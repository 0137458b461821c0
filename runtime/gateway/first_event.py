"""The beginning of a stream: what fails before its first event can be tried again, elsewhere."""

import asyncio
from collections.abc import AsyncGenerator

from baobab.runtime.gateway.usage_meter import UsageMeter

_FIRST_SECONDS = 2.0
"""How long a first event keeps a stream from being passed on: whoever leaves meanwhile is not seen to leave."""


async def wait_for_first_event(pieces: AsyncGenerator[bytes, None], meter: UsageMeter) -> AsyncGenerator[bytes, None]:
    """The same pieces, when the first event is there: what fails before it is raised, to be tried elsewhere."""
    clock = asyncio.get_running_loop().time
    until = clock() + _FIRST_SECONDS
    received: list[bytes] = []
    # By the clock too: comments may come for ever, each of them at once.
    while not meter.has_begun and clock() < until:
        coming = asyncio.create_task(_read_next(pieces))
        try:
            there, _ = await asyncio.wait((coming,), timeout=max(0.0, until - clock()))
        except asyncio.CancelledError:
            coming.cancel()
            raise
        if not there:
            return _resume_stream(received, coming, pieces)
        piece = coming.result()
        if piece is None:
            break
        received.append(piece)
    return _resume_stream(received, None, pieces)


async def _read_next(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)


async def _resume_stream(
    received: list[bytes], coming: asyncio.Task[bytes | None] | None, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    try:
        for piece in received:
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
