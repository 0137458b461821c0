"""Answers as streams, which say that they are alive while a model thinks."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from baobab.runtime.gateway.events import KEEP_ALIVE
from baobab.runtime.gateway.model import Model
from baobab.tools.ai import read_ahead
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.model_calls import MeteredCall, keep_ending, meter_stream, render_error_event
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.stream import Stream

Pieces = AsyncGenerator[bytes, None]
Answering = Coroutine[Any, Any, tuple[Pieces, MeteredCall]]


async def stream_answer(
    call: Call,
    model: Model,
    answering: Answering,
    keep: Callable[[Pieces, MeteredCall], Pieces],
    tell_error: Callable[[BaobabError, int], bytes] = render_error_event,
    *,
    beat: bytes = KEEP_ALIVE,
    cache: str | None = None,
) -> Stream:
    """The stream of an answer that is on its way; whatever fails within ten seconds is raised.

    After that a stream begins with `beat`, which is sent every ten seconds in which nothing else is, and what fails is
    told by an event. model: the one that is asked first. keep: what is done with the pieces on their way.
    tell_error: an error as a last event, behind so many others. cache: what the headers say of kept answers.
    """
    task = asyncio.create_task(answering)
    try:
        there, _ = await asyncio.wait((task,), timeout=read_ahead.BEAT_SECONDS)
    except asyncio.CancelledError:
        keep_ending(_abandon(task))
        raise
    if there:
        pieces, metered = task.result()
        set_answer_headers(call, metered.model, cache=cache)
        return Stream(meter_stream(keep(pieces, metered), metered, tell_error, beat))
    # Another may answer in its place, so no header says which one it is.
    call.audit.resource_id = model.id
    return Stream(_late(task, keep, tell_error, beat))


async def _late(
    task: "asyncio.Task[tuple[Pieces, MeteredCall]]",
    keep: Callable[[Pieces, MeteredCall], Pieces],
    tell_error: Callable[[BaobabError, int], bytes],
    beat: bytes,
) -> Pieces:
    taken = False
    try:
        while not task.done():
            yield beat
            await asyncio.wait((task,), timeout=read_ahead.BEAT_SECONDS)
        taken = True
        try:
            pieces, metered = task.result()
        except BaobabError as error:
            # The status has been sent.
            yield tell_error(error, 0)
            return
        async with contextlib.aclosing(meter_stream(keep(pieces, metered), metered, tell_error, beat)) as passed_on:
            async for piece in passed_on:
                yield piece
    finally:
        if not taken:
            keep_ending(_abandon(task))


async def _abandon(task: "asyncio.Task[tuple[Pieces, MeteredCall]]") -> None:
    """Nobody wants the answer any more: its provider is left, and what it used is counted."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and task.exception() is None:
        pieces, metered = task.result()
        await pieces.aclose()
        await metered.end()
