"""Servers that are forked from a process which has already imported them (tests/cli/preloaded.py)."""

import atexit
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_PROGRAM = Path(__file__).with_name("preloaded.py")
_lock = threading.Lock()


class ForkedProcess:
    """A process that is not this one's child, used like a `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: int) -> None:
        self.returncode: int | None = None
        self._lock = threading.Lock()
        request = {"arguments": [*arguments], "environment": dict(environment), "folder": str(Path.cwd())}
        reading, writing = os.pipe()
        try:
            socket.send_fds(_start_parent(), [json.dumps(request).encode()], [log, writing])
        finally:
            os.close(writing)
        self._pipe = os.fdopen(reading, "rb", buffering=0)
        self.pid = int(self._pipe.readline())

    def poll(self) -> int | None:
        return self._read_end(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_end(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("baobab", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_end(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                with selectors.DefaultSelector() as selector:
                    selector.register(self._pipe, selectors.EVENT_READ)
                    if selector.select(timeout):
                        self.returncode = int(self._pipe.readline())
                        self._pipe.close()
            return self.returncode


def _start_parent() -> socket.socket:
    with _lock:
        return _find_parent()


@functools.cache
def _find_parent() -> socket.socket:
    """Starts the process that forks, which lasts as long as this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(_PROGRAM), str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    theirs.close()

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours
