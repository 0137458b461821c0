"""A connection to Postgres that listens for announcements of other processes."""

import asyncio
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import psycopg


class PostgresListener:
    """Hears what other processes announce. Whoever announces something also gets it from the server, with every commit
    that does: psycopg would register with the event loop anew each time, which costs ten times as much.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], origin: str) -> None:
        """connection: one that listens already, and is closed with this. origin: the first word of our own
        announcements; their subjects follow.
        """
        self._connection = connection
        self._pgconn = connection.pgconn
        self._origin = origin.encode()
        self._connection_error: psycopg.Error | None = None
        self._wakeup = asyncio.Event()
        self._subjects: set[str] | None = set()
        """What others have announced since the last call of `wait`; None for an announcement without subjects."""
        self._loop = asyncio.get_running_loop()
        # One of our own, which nobody closes while the event loop watches it.
        self._socket = socket.socket(fileno=os.dup(self._pgconn.socket))
        self._loop.add_reader(self._socket, self._receive)

    async def wait(self, seconds: float) -> Collection[str] | None:
        """Returns the subjects that other processes have announced, and None after `seconds`. Raises psycopg.Error if
        the connection is lost.
        """
        # The event loop may have stopped watching a socket that has an error (postgres_session.py).
        self._receive()
        if self._connection_error is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wakeup.wait()
        self._wakeup.clear()
        if self._connection_error is not None:
            raise self._connection_error
        subjects, self._subjects = self._subjects, set()
        return subjects or None

    async def close(self) -> None:
        self._stop_watching()
        await self._connection.close()

    def _receive(self) -> None:
        if self._connection_error is not None:
            return
        try:
            self._pgconn.consume_input()
        except psycopg.Error as exc:
            self._connection_error = exc
            self._stop_watching()
            self._wakeup.set()
            return
        while (notice := self._pgconn.notifies()) is not None:
            origin, *subjects = notice.extra.split() or [b""]
            if origin == self._origin:
                continue
            self._wakeup.set()
            if not subjects:
                # From a process of the previous version.
                self._subjects = None
            elif self._subjects is not None:
                self._subjects.update(subject.decode() for subject in subjects)

    def _stop_watching(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
