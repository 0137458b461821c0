"""Answers as streams, which say that they are alive while a model thinks."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from baobab.runtime.gateway.events import KEPT_ALIVE
from baobab.runtime.gateway.model import Model
from baobab.tools.ai import ahead
from baobab.tools.ai.asking import Asked, counted, keep_ending, told
from baobab.tools.ai.telling import tell
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.stream import Stream

Pieces = AsyncGenerator[bytes, None]
Answering = Coroutine[Any, Any, tuple[Pieces, Asked]]


async def stream_answer(
    call: Call,
    model: Model,
    answering: Answering,
    keep: Callable[[Pieces, Asked], Pieces],
    tell_error: Callable[[BaobabError, int], bytes] = told,
    *,
    beat: bytes = KEPT_ALIVE,
    cache: str | None = None,
) -> Stream:
    """The stream of an answer that is on its way; whatever fails within ten seconds is raised.

    After that a stream begins with `beat`, which is sent every ten seconds in which nothing else is, and what fails is
    told by an event. model: the one that is asked first. keep: what is done with the pieces on their way.
    tell_error: an error as a last event, behind so many others. cache: what the headers say of kept answers.
    """
    task = asyncio.create_task(answering)
    try:
        there, _ = await asyncio.wait((task,), timeout=ahead.BEAT_SECONDS)
    except asyncio.CancelledError:
        keep_ending(_abandon(task))
        raise
    if there:
        pieces, asked = task.result()
        tell(call, asked.model, cache=cache)
        return Stream(counted(keep(pieces, asked), asked, tell_error, beat))
    # Another may answer in its place, so no header says which one it is.
    call.audit.resource_id = model.id
    return Stream(_late(task, keep, tell_error, beat))


async def _late(
    task: "asyncio.Task[tuple[Pieces, Asked]]",
    keep: Callable[[Pieces, Asked], Pieces],
    tell_error: Callable[[BaobabError, int], bytes],
    beat: bytes,
) -> Pieces:
    taken = False
    try:
        while not task.done():
            yield beat
            await asyncio.wait((task,), timeout=ahead.BEAT_SECONDS)
        taken = True
        try:
            pieces, asked = task.result()
        except BaobabError as error:
            # The status has been sent.
            yield tell_error(error, 0)
            return
        async with contextlib.aclosing(counted(keep(pieces, asked), asked, tell_error, beat)) as passed_on:
            async for piece in passed_on:
                yield piece
    finally:
        if not taken:
            keep_ending(_abandon(task))


async def _abandon(task: "asyncio.Task[tuple[Pieces, Asked]]") -> None:
    """Nobody wants the answer any more: its provider is left, and what it used is counted."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and task.exception() is None:
        pieces, asked = task.result()
        await pieces.aclose()
        await asked.end()
