"""Ports for servers that are started with a number and take it a second later."""

import itertools
import os
import socket

# Below what systems give out by themselves, to whoever asks for any port or connects to one: it would be gone by then.
_FIRST = 20_000
_EACH = 1_000
_PROCESSES = 12
# A thousand for each process, by chance: two runs of the suite hardly meet.
_OWN = _FIRST + os.getpid() % _PROCESSES * _EACH
_TURNS = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """A port of loopback that nobody listens on, and that is not given out again for a long time."""
    for turn in itertools.islice(_TURNS, _EACH):
        port = _OWN + turn % _EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
