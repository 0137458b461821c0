"""The memory of the suite: how much there is, and garbage in a process that opens hundreds of installations."""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.dependencies import models

from baobab import lazy_mount


def measure_memory() -> int:
    """Returns how many bytes of memory these processes may take: those of the machine, or of their control groups."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    groups = Path("/proc/self/cgroup")
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controllers in ("", "memory"):
            file = "memory.limit_in_bytes" if controllers else "memory.max"
            # A group is bounded by those that it is in, too; in a container, the root is its own.
            for path in (Path(group), *Path(group).parents):
                limit = Path("/sys/fs/cgroup", controllers, path.relative_to("/"), file)
                if limit.exists() and (text := limit.read_text().strip()).isdecimal():
                    sizes.append(int(text))
    return min(sizes)


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
