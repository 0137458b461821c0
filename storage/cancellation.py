"""Protects work from the cancellation of its caller."""

import asyncio
from asyncio import ensure_future
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end even if the caller is cancelled, and returns its result. A cancelled caller gets
    CancelledError afterwards.
    """
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
