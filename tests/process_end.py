"""What the tests undo when a process ends."""

import atexit
import os
from collections.abc import Callable
from typing import Any

_HELD: list[Callable[[], Any]] = []
"""The functions. A process that was forked must not free them either: freeing a context manager ends its block."""


def run_at_end(undo: Callable[[], Any]) -> None:
    """Calls a function when this process ends, and not when one ends that was forked from it."""
    owner = os.getpid()
    _HELD.append(undo)
    atexit.register(lambda: undo() if os.getpid() == owner else None)
