"""Reads that wait for a connection, and then share it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import zip_longest
from typing import Any

from sqlalchemy import Executable

from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.postgres_connection import PostgresConnection
from baobab.storage.sql.prepared_statements import Result

_MOST_TOGETHER = 32

_Read = tuple[Executable, Any, "asyncio.Future[Result | None]"]


class SharedReads:
    """Sends the reads that wait for a connection together, as soon as one is free. Half of what a short read costs is
    sending it, being woken and receiving the answer, which is then done once for all of them.
    """

    def __init__(self, reading: Callable[..., AbstractAsyncContextManager[PostgresConnection]]) -> None:
        """reading: that of the database."""
        self._reading = reading
        self._waiting: list[_Read] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def execute(self, statement: Executable, values: Any) -> Result | None:
        """Returns the result of a short query; None if it has to be asked alone, because one of those
        that were sent with it has failed. Raises DatabaseUnavailable if no connection becomes free.
        """
        answer: asyncio.Future[Result | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((statement, values, answer))
        if len(self._waiting) == 1:
            self._start()
        return await answer

    def _start(self) -> None:
        task = asyncio.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        reads: list[_Read] | None = None
        outcomes: Sequence[Result | None] = ()
        try:
            async with self._reading(single=True) as connection:
                reads = self._take_waiting()
                if reads:
                    outcomes = await connection.execute_all([(statement, values) for statement, values, _ in reads])
        except DatabaseUnavailable as exc:
            if reads is None:
                # No connection became free, and whoever asked alone or in the next group would wait as long again.
                for _, _, answer in self._take_waiting(len(self._waiting)):
                    # A copy for each: an exception must not be raised by several tasks.
                    answer.set_exception(DatabaseUnavailable(str(exc), exc.reason))
        finally:
            # Whatever has happened, nobody is left waiting.
            for (_, _, answer), result in zip_longest(reads or (), outcomes):
                if not answer.done():
                    answer.set_result(result)

    def _take_waiting(self, most: int = _MOST_TOGETHER) -> list[_Read]:
        reads, self._waiting = self._waiting[:most], self._waiting[most:]
        if self._waiting:
            self._start()
        # Callers that were cancelled meanwhile do not read.
        return [read for read in reads if not read[2].done()]
