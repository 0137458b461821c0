"""A chain of nodes on LangGraph as it comes, with its own saver on SQLite: what a step costs with no run around it."""

import operator
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    state: Annotated[dict[str, Any], lambda one, other: {**one, **other}]
    steps: Annotated[int, operator.add]


class StockGraph:
    def __init__(self, nodes: int) -> None:
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        for index in range(nodes):
            graph.add_node(f"n{index}", _run_step)
            graph.add_edge(f"n{index - 1}" if index else START, f"n{index}")
        graph.add_edge(f"n{nodes - 1}", END)
        self._graph = graph
        self._nodes = nodes

    async def measure_steps(self, folder: Path, runs: int) -> tuple[float, float]:
        """CPU seconds and seconds of a step."""
        async with AsyncSqliteSaver.from_conn_string(str(folder / "stock.db")) as saver:
            compiled_graph = self._graph.compile(checkpointer=saver)
            began, cpu_began = time.perf_counter(), time.process_time()
            for number in range(runs):
                config: Any = {"configurable": {"thread_id": f"{time.monotonic_ns()} {number}"}}
                await compiled_graph.ainvoke({"state": {}, "steps": 0}, config, durability="sync")
            steps = runs * self._nodes
            return (time.process_time() - cpu_began) / steps, (time.perf_counter() - began) / steps


async def _run_step(state: State) -> State:
    return {"state": {"found": {"value": state["steps"]}}, "steps": 1}
