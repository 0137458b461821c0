"""Work that continues when its caller is cancelled, and work that ends with the block that began it."""

import asyncio
from asyncio import ensure_future
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Awaitable[T]) -> T:
    """Waits for a coroutine or a future to its end even if the caller is cancelled, and returns its result. A cancelled
    caller gets CancelledError afterwards.
    """
    task = ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as exc:
            cancellation = exc
    if cancellation is not None:
        raise cancellation
    return task.result()


@asynccontextmanager
async def run_beside(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Runs a coroutine as a task while the block runs, and yields the task. It is cancelled if it has not ended with
    the block.
    """
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif not task.cancelled():
            # Retrieved, or it would be logged that nobody did.
            task.exception()
