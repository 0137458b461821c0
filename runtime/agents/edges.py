"""The edges of a graph: which node follows another, by what a run holds then."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.agents.conditions import Condition, ConditionError, EvaluationContext
from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.spec import GraphSpec


class Edges:
    """names: what LangGraph calls each node. Names of nodes are anybody's text; LangGraph's are not."""

    def __init__(self, spec: GraphSpec) -> None:
        # Sorted: a graph has the same names whichever way it was stored.
        self.names = {node_id: f"n{index}" for index, node_id in enumerate(sorted(spec.nodes))}
        self._targets: dict[str, list[tuple[Condition | None, str]]] = {}
        for edge in spec.edges:
            condition = None if edge.when is None else Condition(edge.when)
            self._targets.setdefault(edge.from_, []).append((condition, self.names[edge.to]))

    def follow(self, node_id: str, values: Mapping[str, Any]) -> str:
        """LangGraph's name of the node to which the first edge leads whose condition holds. RunFailed where none does.

        values: `state` and `input`.
        """
        context = EvaluationContext(values)
        for condition, name in self._targets.get(node_id, ()):
            try:
                if condition is None or condition.is_met(context):
                    return name
            except ConditionError as exc:
                raise RunFailed("invalid_condition", f"{node_id}: {exc}") from exc
        raise RunFailed("no_edge", f"No edge leads on from {node_id}: none of its conditions holds.")
