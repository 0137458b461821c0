"""Runs the fork server (child/__main__.py): one for this process, while documents are read."""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import NamedTuple


class Forked(NamedTuple):
    """A process that was started. answer: the descriptor to read its answer from. lifeline: closing this one ends the
    process.
    """

    answer: int
    lifeline: int


class ForkServer:
    """Starts processes for documents. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        atexit.register(self.close)

    def start(self, task: str, options: Mapping[str, object], source: int) -> Forked:
        """Starts a process that does a task on an open file.

        The first byte of the answer says that the process was started. If the answer has no byte, the fork server had
        just ended: call this again.
        """
        request = json.dumps([task, options]).encode()
        answer, answer_writer = os.pipe()
        lifeline_reader, lifeline = os.pipe()
        try:
            with self._lock:
                try:
                    self._send(request, [source, answer_writer, lifeline_reader])
                except (BrokenPipeError, ConnectionResetError):
                    # It ends when it has had nothing to do for a while.
                    self._close()
                    self._send(request, [source, answer_writer, lifeline_reader])
        except BaseException:
            os.close(answer)
            os.close(lifeline)
            raise
        finally:
            os.close(answer_writer)
            os.close(lifeline_reader)
        return Forked(answer, lifeline)

    def close(self) -> None:
        """Ends the fork server and the processes that it has started. The next document starts another one."""
        with self._lock:
            self._close()

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        if self._requests is None:
            self._requests = self._open()
        head = len(request).to_bytes(4, "big")
        # The descriptors arrive with the first byte; the rest may have to wait for room.
        sent_bytes = socket.send_fds(self._requests, [head, request], descriptors)
        self._requests.sendall((head + request)[sent_bytes:])

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        # Isolated from the environment and the working folder; its text is UTF-8 wherever it runs.
        command = [sys.executable, "-I", "-X", "utf8", "-m", "baobab.runtime.documents.child"]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        return ours

    def _close(self) -> None:
        if self._requests is not None and self._process is not None:
            # Its end comes with that of its socket.
            self._requests.close()
            self._process.wait()
            self._requests = self._process = None
