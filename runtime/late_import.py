"""Imports large libraries after the start: in a thread, and one at a time.

Two threads that import parts of one library at the same moment wait for each other's module locks. Python resolves that
deadlock by returning a half-initialised module: an ImportError that no later import repairs. So every import that
happens in a thread happens here.
"""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_one_at_a_time = threading.RLock()


class LateImport(Generic[T]):
    """A library that is imported when it is first needed, and once for each process."""

    def __init__(self, load: Callable[[], T], *, packages: tuple[str, ...] = ()) -> None:
        """load: imports the library, and returns what callers need of it. packages: top-level packages to remove from
        `sys.modules` if the import fails, because a partly imported one would make the next attempt fail too.
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
                # A garbage collection during an import would only look at objects that stay for ever.
                gc.disable()
                try:
                    value = self._load()
                except BaseException:
                    for name in [name for name in sys.modules if name.partition(".")[0] in self._packages]:
                        del sys.modules[name]
                    raise
                finally:
                    gc.enable()
                # Exempts these objects from later collections. Not collected before, which would delay every request.
                gc.freeze()
                self._value = value
            return self._value
