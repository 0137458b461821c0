"""Garbage in a process of the suite, which holds ten thousand tests and opens hundreds of installations."""

import contextlib
import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fastapi.dependencies import models

from baobab import lazy_mount


def freeze_only_once(patch: pytest.MonkeyPatch) -> None:
    """Lets the first server exempt what it has loaded from garbage collections, and no later one.

    What is exempt is never freed, and most of what a later server adds are objects of its own.
    """
    freezes: list[bool] = []

    def freeze() -> None:
        if not freezes:
            freezes.append(True)
            gc.collect()
            gc.freeze()

    patch.setattr(lazy_mount, "gc", SimpleNamespace(collect=lambda: 0, freeze=freeze))


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Lets more objects be made between two garbage collections, each of which looks through all tests of the suite."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    yield
    gc.set_threshold(*before)


def forget_routes() -> None:
    """FastAPI remembers thousands of functions of routes, and each holds the installation that it was made for."""
    for value in vars(models).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
