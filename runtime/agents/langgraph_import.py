"""Imports LangGraph when it is first needed, which takes most of a second."""

from dataclasses import dataclass
from typing import Any

from baobab.runtime.late_import import LateImport


@dataclass(frozen=True, slots=True)
class GraphLibrary:
    """The code that imports LangGraph: graph.py, checkpointer.py, fork.py and state.py of runtime/agents/."""

    compile_graph: Any
    initial_state: Any
    checkpointer: Any
    find_fork_point: Any
    read_state: Any


async def load_graph_library() -> GraphLibrary:
    """Returns the code that imports LangGraph. The first run imports it."""
    return await _library.get()


def _import_library() -> GraphLibrary:
    from baobab.runtime.agents.checkpointer import Checkpointer
    from baobab.runtime.agents.fork import find_fork_point, read_state
    from baobab.runtime.agents.graph import compile_graph
    from baobab.runtime.agents.state import build_initial_state

    return GraphLibrary(compile_graph, build_initial_state, Checkpointer, find_fork_point, read_state)


_library = LateImport(_import_library, packages=("langgraph", "langchain_core", "langsmith", "baobab.runtime.agents"))
