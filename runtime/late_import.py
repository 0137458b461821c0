"""Imports large libraries after the start: in a thread, and one at a time.

Two threads that import parts of one library at the same moment wait for each other's module locks. Python resolves that
deadlock by returning a half-initialised module: an ImportError that no later import repairs. So every import that
happens in a thread happens here.
"""

import asyncio
import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Imports libraries without garbage collections, which would only look at objects that stay for ever: they take a
    sixth of the time. Afterwards what is new is exempt from later ones.
    """
    modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    if len(sys.modules) > modules:
        # Not collected before, which would delay every request.
        gc.freeze()


class LateImport(Generic[T]):
    """A library that is imported when it is first needed, and once for each process."""

    def __init__(self, load: Callable[[], T], *, packages: tuple[str, ...] = ()) -> None:
        """load: imports the library, and returns what callers need of it. packages: packages and modules to import
        anew if the import fails, with all below them: a package that is imported again while parts of it are still
        there fails again, or has each of its classes twice.
        """
        self._load = load
        self._packages = packages
        self._value: T | None = None

    async def get(self) -> T:
        """Returns the library. Raises what its import raises; then the next call tries again."""
        return self._value if self._value is not None else await asyncio.to_thread(self.import_now)

    def import_now(self) -> T:
        """Imports the library in this thread, after the imports of other threads."""
        with _one_at_a_time:
            if self._value is None:
                before = set(sys.modules)
                try:
                    with without_collections():
                        self._value = self._load()
                except BaseException:
                    self._forget(set(sys.modules) - before)
                    raise
            return self._value

    def _forget(self, modules: set[str]) -> None:
        for name in modules:
            if any(name == package or name.startswith(f"{package}.") for package in self._packages):
                sys.modules.pop(name, None)
