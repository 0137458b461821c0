"""Runs one piece of work on a stranger's file in a process of its own, which is killed when it takes too long.

The process gets the file and nothing else: no environment, no descriptors, no folder of the server. What it may use is
limited in child/confinement.py, by itself, before it reads the file's content.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from baobab.runtime.fair_thread_pool import FairThreadPool

_AT_ONCE = 2
_PIECE = 2**18
_pool = FairThreadPool("documents", threads=_AT_ONCE)


class ChildTookTooLong(Exception):
    """The process was killed at the end of its time."""


class ChildFailed(Exception):
    """The process ended without an answer: it crashed, or it would have used more than it may."""


async def run_child(
    task: str, options: Mapping[str, object], source: Path | IO[bytes], *, seconds: float, most: int
) -> bytes:
    """Runs a task of child/__main__.py on a file and returns its answer, of at most `most` bytes.

    source: an open one is read from where it stands.

    A few processes run at once, one for each tenant in turn. If the caller is cancelled, its process is killed.
    Raises ChildTookTooLong, ChildFailed, OSError where the file cannot be opened.
    """
    child = _Child(task, options, source, seconds, most)
    try:
        return await _pool.run_work(child.run)
    finally:
        child.stop()


class _Child:
    """One process, from its start to its end, in one thread. `stop` may be called from another."""

    def __init__(
        self, task: str, options: Mapping[str, object], source: Path | IO[bytes], seconds: float, most: int
    ) -> None:
        # Isolated from the environment and the working folder; its text is UTF-8 wherever it runs.
        isolated = ["-I", "-X", "utf8", "-m", "baobab.runtime.documents.child"]
        self._command = [sys.executable, *isolated, task, json.dumps(options)]
        self._source = source
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self) -> bytes:
        deadline = time.monotonic() + self._seconds
        opened = self._source.open("rb") if isinstance(self._source, Path) else contextlib.nullcontext(self._source)
        with opened as source, self._lock:
            if self._stopped:
                raise ChildFailed
            process = self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self._command,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        with process:
            try:
                answer = self._read(process, deadline)
            finally:
                # Also after a whole answer: nothing of a process that was taken over goes on.
                process.kill()
        return answer

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()

    def _read(self, process: "subprocess.Popen[bytes]", deadline: float) -> bytes:
        assert process.stdout is not None
        pieces: list[bytes] = []
        left = self._most
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                piece = os.read(process.stdout.fileno(), _PIECE)
                left -= len(piece)
                if left < 0 or not (piece or pieces):
                    raise ChildFailed
                if not piece:
                    return b"".join(pieces)
                pieces.append(piece)
        raise ChildTookTooLong
