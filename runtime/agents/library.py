"""LangGraph, imported when it is first needed: that takes the better part of a second."""

from dataclasses import dataclass
from typing import Any

from baobab.runtime.late_import import LateImport


@dataclass(frozen=True, slots=True)
class Graphs:
    """What is built on LangGraph: graph.py, checkpointer.py and fork.py of runtime/agents/."""

    compiled: Any
    begun: Any
    checkpointer: Any
    point: Any


async def graphs() -> Graphs:
    """What is built on LangGraph, imported with the first run."""
    return await _library.get()


def _load() -> Graphs:
    from baobab.runtime.agents.checkpointer import Checkpointer
    from baobab.runtime.agents.fork import point
    from baobab.runtime.agents.graph import compiled
    from baobab.runtime.agents.state import begun

    return Graphs(compiled, begun, Checkpointer, point)


_library = LateImport(_load)
