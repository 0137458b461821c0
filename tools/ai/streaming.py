"""Streams answers, with beats that keep the connection alive while a model thinks."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from baobab.runtime.gateway.events import KEEP_ALIVE
from baobab.runtime.gateway.model import Model
from baobab.tools.ai import read_ahead
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.metered_call import MeteredCall
from baobab.tools.ai.model_calls import keep_ending, meter_stream, render_error_event
from baobab.tools.core import BaobabError, Call
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
    """Streams an answer. Errors within the first ten seconds are raised.

    If the answer has not begun by then, the stream begins with `beat`, which is sent after every ten seconds of
    silence, and an error becomes the last event. model: the model that is called first. keep: wraps the pieces.
    tell_error: renders an error as the last event, given the number of events before it. cache: the value of the
    cache's header.
    """
    task = asyncio.create_task(answering)
    try:
        done_tasks, _ = await asyncio.wait((task,), timeout=read_ahead.BEAT_SECONDS)
    except asyncio.CancelledError:
        keep_ending(_abandon(task))
        raise
    if done_tasks:
        pieces, metered_call = task.result()
        set_answer_headers(call, metered_call.model, cache=cache)
        return Stream(meter_stream(keep(pieces, metered_call), metered_call, tell_error, beat))
    # A fallback model may answer, so no header names the model.
    call.audit.resource_id = model.id
    return Stream(_late(task, keep, tell_error, beat))


async def _late(
    task: "asyncio.Task[tuple[Pieces, MeteredCall]]",
    keep: Callable[[Pieces, MeteredCall], Pieces],
    tell_error: Callable[[BaobabError, int], bytes],
    beat: bytes,
) -> Pieces:
    is_taken = False
    try:
        while not task.done():
            yield beat
            await asyncio.wait((task,), timeout=read_ahead.BEAT_SECONDS)
        is_taken = True
        try:
            pieces, metered_call = task.result()
        except BaobabError as error:
            # The status has already been sent.
            yield tell_error(error, 0)
            return
        async with contextlib.aclosing(
            meter_stream(keep(pieces, metered_call), metered_call, tell_error, beat)
        ) as passed_on:
            async for piece in passed_on:
                yield piece
    finally:
        if not is_taken:
            keep_ending(_abandon(task))


async def _abandon(task: "asyncio.Task[tuple[Pieces, MeteredCall]]") -> None:
    """Cancels an answer that nobody waits for, and charges what it used."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and task.exception() is None:
        pieces, metered_call = task.result()
        await pieces.aclose()
        await metered_call.end()
