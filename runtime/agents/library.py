"""LangGraph, loaded when it is first needed: that takes the better part of a second."""

import asyncio
import gc
import threading
from dataclasses import dataclass
from typing import Any

_lock = threading.Lock()
_loaded: "Graphs | None" = None


@dataclass(frozen=True, slots=True)
class Graphs:
    """What is built on LangGraph: graph.py, checkpointer.py and fork.py of runtime/agents/."""

    compiled: Any
    begun: Any
    checkpointer: Any
    point: Any


async def graphs() -> Graphs:
    return _loaded if _loaded is not None else await asyncio.to_thread(_load)


def _load() -> Graphs:
    global _loaded  # noqa: PLW0603 - one library for each process
    with _lock:
        if _loaded is None:
            gc.disable()
            try:
                from baobab.runtime.agents.checkpointer import Checkpointer
                from baobab.runtime.agents.fork import point
                from baobab.runtime.agents.graph import begun, compiled
            finally:
                gc.enable()
            gc.freeze()
            _loaded = Graphs(compiled, begun, Checkpointer, point)
    return _loaded
