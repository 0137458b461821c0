"""The processes of Monty, an interpreter of a part of Python."""

import asyncio
import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baobab.runtime.functions.errors import EngineUnavailable
from baobab.runtime.functions.launching import write_monty_launcher
from baobab.runtime.late_import import LateImport

monty: LateImport[Any] = LateImport(lambda: importlib.import_module("pydantic_monty"), packages=("pydantic_monty",))


class MontyPool:
    """Monty's processes. Each serves one session; one waits for the next."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._folder = tempfile.TemporaryDirectory(prefix="baobab-function-")
        self._pool: Any = None

    async def open(self) -> None:
        """Makes it ready. Raises EngineUnavailable."""
        try:
            module = await monty.get()
        except ImportError as error:
            text = "Functions in Python cannot run here: Monty was not found. Install `pydantic-monty-client`."
            raise EngineUnavailable(text) from error
        launcher = await asyncio.to_thread(write_monty_launcher, Path(self._folder.name))
        pool = module.AsyncMonty(
            binary_path=launcher, min_processes=1, max_processes=self._processes, max_checkouts_per_worker=1
        )
        await pool.__aenter__()
        self._pool = pool

    def checkout(self, limits: Mapping[str, float]) -> Any:
        """Returns a session with a process of its own, to be entered with `async with`."""
        return self._pool.checkout(limits=limits)

    async def close(self) -> None:
        """Ends all processes."""
        if self._pool is not None:
            await self._pool.__aexit__(None, None, None)
        self._folder.cleanup()


async def open_pool(processes: int) -> MontyPool:
    """Returns an open pool of Monty's processes. Raises EngineUnavailable."""
    pool = MontyPool(processes)
    try:
        await pool.open()
    except BaseException:
        await pool.close()
        raise
    return pool
