"""What is not left half done because nobody waits for it any more."""

import asyncio
from asyncio import ensure_future
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """What it comes to. A caller who is cancelled meanwhile, however often, hears of that when it is done."""
    task = ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    return task.result()
