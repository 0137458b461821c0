"""Large libraries that are imported after the start: in a thread, and one at a time.

Two threads that import parts of one library at the same moment wait for each other's module locks, and Python ends
such a wait by handing out a module that is only half there: an ImportError that no later import repairs. So every
import that happens in a thread happens here.
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
        """load: imports, sets up and returns what is needed of the library. packages: names of top-level packages
        that are forgotten when an import fails, because what is left of them would make the next attempt fail too.
        """
        self._load = load
        self._packages = packages
        self._value: T | None = None

    async def get(self) -> T:
        """The library. Raises what its import raised; the next call tries again."""
        return self._value if self._value is not None else await asyncio.to_thread(self.import_now)

    def import_now(self) -> T:
        """The library, imported in this thread, which waits for the imports of others."""
        with _one_at_a_time:
            if self._value is None:
                # A collection in the middle of an import looks at everything that stays for ever anyway.
                gc.disable()
                try:
                    value = self._load()
                except BaseException:
                    for name in [name for name in sys.modules if name.partition(".")[0] in self._packages]:
                        del sys.modules[name]
                    raise
                finally:
                    gc.enable()
                # Out of the collector's rounds for good; not collected first, which would hold up every answer.
                gc.freeze()
                self._value = value
            return self._value
