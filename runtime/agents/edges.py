"""The edges of a graph: which node follows another, by the values of the run."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.spec.conditions import Condition
from baobab.runtime.agents.spec.spec import GraphSpec
from baobab.runtime.json_logic.context import EvaluationContext, RuleError


class Edges:
    """The edges of a graph.

    names: LangGraph's names of the nodes, by node id. Node ids may be any text; LangGraph's names may not.
    """

    def __init__(self, spec: GraphSpec) -> None:
        # Sorted, so that a graph has the same names in whatever order it was stored.
        self.names = {node_id: f"n{index}" for index, node_id in enumerate(sorted(spec.nodes))}
        self._targets: dict[str, list[tuple[Condition | None, str]]] = {}
        for edge in spec.edges:
            condition = None if edge.when is None else Condition(edge.when)
            self._targets.setdefault(edge.from_, []).append((condition, self.names[edge.to]))

    def follow(self, node_id: str, values: Mapping[str, Any]) -> str:
        """Returns LangGraph's name of the next node: that of the first edge whose condition holds. Raises RunFailed if
        none does.

        values: `state` and `input`.
        """
        context = EvaluationContext(values)
        for condition, name in self._targets.get(node_id, ()):
            try:
                if condition is None or condition.is_met(context):
                    return name
            except RuleError as exc:
                raise RunFailed("invalid_condition", f"{node_id}: {exc}") from exc
        raise RunFailed("no_edge", f"No edge leads on from {node_id}: none of its conditions holds.")
