"""Ports for servers that are started with a number and take it a second later."""

import fcntl
import itertools
import os
import socket
import tempfile
from functools import cache
from pathlib import Path

# Below what systems give out by themselves, to whoever asks for any port or connects to one: it would be gone by then.
_FIRST = 20_000
_EACH = 500
_RANGES = 24
_OFFSETS = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """A port of loopback that nobody listens on, and that is not given out again for a long time."""
    first = _claim_range()
    for turn in itertools.islice(_OFFSETS, _EACH):
        port = first + turn % _EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@cache
def _claim_range() -> int:
    """The first of the ports that are this process's own until it ends: of runs side by side, no two take one port."""
    for number in range(_RANGES):
        lock = os.open(Path(tempfile.gettempdir()) / f"baobab-tests-ports-{number}", os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            return _FIRST + number * _EACH
    raise AssertionError("too many runs of the tests at once")
