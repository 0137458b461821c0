"""Gives back the memory of installations that ended: a process of the suite opens hundreds of them, a server one."""

import gc
from types import SimpleNamespace

import pytest
from fastapi.dependencies import models

from baobab import lazy_mount


def freeze_only_once(patch: pytest.MonkeyPatch) -> None:
    """Lets the first server exempt what it has loaded from garbage collections, and no later one.

    What is exempt is never freed, and most of what a later server adds are objects of its own.
    """
    frozen: list[bool] = []

    def freeze() -> None:
        if not frozen:
            frozen.append(True)
            gc.collect()
            gc.freeze()

    patch.setattr(lazy_mount, "gc", SimpleNamespace(collect=lambda: 0, freeze=freeze))


def forget_routes() -> None:
    """FastAPI remembers thousands of functions of routes, and each holds the installation that it was made for."""
    for value in vars(models).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
