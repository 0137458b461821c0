"""Imports numpy when it is first needed. A start must not pay for it."""

import os
from functools import lru_cache
from importlib import import_module
from types import ModuleType


@lru_cache(maxsize=1)
def import_numpy() -> ModuleType:
    """Returns numpy, set to compute in the thread that calls it.

    Its own threads wait for each other by spinning, which is many times slower on a busy processor. Whoever imports it
    first decides for the process.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return import_module("numpy")
