"""Which fields of a run's input the nodes of a graph need."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from baobab.runtime.agents.spec.issue import Issue, quote_name
from baobab.runtime.agents.spec.spec import AgentNode, GraphSpec, parse_graph
from baobab.runtime.agents.spec.templates import parse_names
from baobab.runtime.agents.spec.validation import list_node_templates

_ASK = "ask"
"""What a call is shown with; a value that is not there is shown as a gap."""


def list_input_fields(spec: GraphSpec) -> dict[str, str]:
    """Returns the fields of the input without which a node ends the run, each with the first node that names it.

    Conditions need none: what is not there is null to them.
    """
    fields: dict[str, str] = {}
    for node_id, node in spec.nodes.items():
        for path, text, _ in list_node_templates(node):
            if path[0] != _ASK:
                for name in parse_names(text):
                    if name[0] == "input" and len(name) > 1:
                        fields.setdefault(name[1], node_id)
    return fields


def list_fields_of_graph(graph: Any) -> Mapping[str, str]:
    """Returns the same for a graph that was valid when its agent was saved."""
    return _list_fields_of_text(json.dumps(graph, sort_keys=True))


@lru_cache(maxsize=256)
def _list_fields_of_text(text: str) -> Mapping[str, str]:
    try:
        return list_input_fields(parse_graph(text))
    except ValidationError:
        # An earlier version accepted the graph; its runs say what is wrong with it.
        return {}


def find_unfilled_inputs(spec: GraphSpec, fields_of_agents: Mapping[str, Mapping[str, Any]]) -> list[Issue]:
    """Returns the fields that the agents a graph runs need and that its nodes do not give them.

    fields_of_agents: by the name of the agent, the fields that its graph needs.
    """
    issues = []
    for node_id, node in spec.nodes.items():
        if isinstance(node, AgentNode):
            for name, needing_node in fields_of_agents.get(node.agent, {}).items():
                if name not in node.input_template:
                    place = f"the node {quote_name(needing_node)} of the agent {node.agent}"
                    message = f"gives no {quote_name(name)}, without which a run ends at {place}"
                    issues.append(Issue(("nodes", node_id, "input_template"), message))
    return issues
