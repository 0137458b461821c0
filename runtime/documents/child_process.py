"""Runs one task on a stranger's file in a process of its own, which is killed if it takes too long.

The process gets the file and nothing else of the server: no environment variables, no descriptors, no folder. Before it
reads the file's content, it limits itself further (child/confinement.py).
"""

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

from baobab.runtime.documents.fork_server import ForkServer
from baobab.runtime.fair_thread_pool import FairThreadPool

_AT_ONCE = 2
_PIECE = 2**18
_STARTS = 3
"""The attempts to start a process, because an idle fork server may end at that moment."""


class _TaskRunner(NamedTuple):
    """The threads and the fork server that do tasks of one kind."""

    pool: FairThreadPool
    fork_server: ForkServer


_runner = _TaskRunner(FairThreadPool("documents", threads=_AT_ONCE), ForkServer())
_own_runners = {"recognise": _TaskRunner(FairThreadPool("pictures"), ForkServer())}
"""Recognising takes seconds for a page, and the networks take memory, which the fork server of the others need not
have.
"""


class ChildTookTooLong(Exception):
    """The process was killed because its time was over."""


class ChildFailed(Exception):
    """The process ended without an answer: it crashed, or it exceeded its limits."""


async def run_child(
    task: str, options: Mapping[str, object], source: Path | IO[bytes], *, seconds: float, most: int
) -> bytes:
    """Runs a task of child/task.py on a file and returns its answer, of at most `most` bytes.

    source: a path, or an open file, which is read from its present position.

    A few processes run at once, and tenants take turns. If the caller is cancelled, its process is killed. Raises
    ChildTookTooLong, ChildFailed, and OSError if the file cannot be opened or the process cannot be started.
    """
    runner = _own_runners.get(task, _runner)
    child = _Child(runner.fork_server, task, options, source, seconds, most)
    try:
        return await runner.pool.run_work(child.run)
    finally:
        child.stop()


class _Child:
    """One process, from its start to its end, in one thread. Another thread may call `stop`."""

    def __init__(
        self,
        fork_server: ForkServer,
        task: str,
        options: Mapping[str, object],
        source: Path | IO[bytes],
        seconds: float,
        most: int,
    ) -> None:
        self._fork_server = fork_server
        self._task = task
        self._options = options
        self._source = source
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._lifeline: int | None = None
        self._is_stopped = False

    def run(self) -> bytes:
        deadline = time.monotonic() + self._seconds
        opened_source = (
            self._source.open("rb") if isinstance(self._source, Path) else contextlib.nullcontext(self._source)
        )
        with opened_source as source:
            for _ in range(_STARTS):
                if answer := self._start(source.fileno(), deadline):
                    # Its first byte only says that the process was started.
                    if len(answer) == 1:
                        raise ChildFailed
                    return answer[1:]
        raise OSError("No process could be started for a document.")

    def _start(self, source: int, deadline: float) -> bytes:
        """Starts the process and returns its whole output; nothing if it could not be started."""
        with self._lock:
            if self._is_stopped:
                raise ChildFailed
            answer, self._lifeline = self._fork_server.start(self._task, self._options, source)
        try:
            return self._read(answer, deadline)
        finally:
            os.close(answer)
            # Also after a whole answer: nothing of a process that was taken over goes on.
            self._end_process()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
        self._end_process()

    def _end_process(self) -> None:
        with self._lock:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None

    def _read(self, answer: int, deadline: float) -> bytes:
        pieces: list[bytes] = []
        room = self._most + 1
        with selectors.DefaultSelector() as selector:
            selector.register(answer, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                piece = os.read(answer, _PIECE)
                room -= len(piece)
                if room < 0:
                    raise ChildFailed
                if not piece:
                    return b"".join(pieces)
                pieces.append(piece)
        raise ChildTookTooLong
