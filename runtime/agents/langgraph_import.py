"""LangGraph, imported when it is first needed: that takes the better part of a second."""

from dataclasses import dataclass
from typing import Any

from baobab.runtime.late_import import LateImport


@dataclass(frozen=True, slots=True)
class GraphLibrary:
    """What is built on LangGraph: graph.py, checkpointer.py and fork.py of runtime/agents/."""

    compile_graph: Any
    initial_state: Any
    checkpointer: Any
    find_fork_point: Any


async def load_graph_library() -> GraphLibrary:
    """What is built on LangGraph, imported with the first run."""
    return await _library.get()


def _import_library() -> GraphLibrary:
    from baobab.runtime.agents.checkpointer import Checkpointer
    from baobab.runtime.agents.fork import find_fork_point
    from baobab.runtime.agents.graph import compile_graph
    from baobab.runtime.agents.state import build_initial_state

    return GraphLibrary(compile_graph, build_initial_state, Checkpointer, find_fork_point)


_library = LateImport(_import_library)
