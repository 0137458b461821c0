"""The JSON Schema of a graph, for people and models that write one: with descriptions, without references."""

from functools import cache
from typing import Any

from baobab.runtime.agents.spec import NODE_ID, GraphSpec
from baobab.tools.core.schema import portable


@cache
def graph_schema() -> dict[str, Any]:
    """Builds the schema from the models that parse a graph, so that the two cannot differ."""
    schema: dict[str, Any] = _simplify_schema(portable(GraphSpec.model_json_schema()))
    return schema


def _simplify_schema(node: Any) -> Any:
    """Removes keywords that only repeat what others say."""
    if isinstance(node, list):
        return [_simplify_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {
        word: _simplify_schema(value) for word, value in node.items() if word not in ("discriminator", "propertyNames")
    }
    if plain.get("pattern") == NODE_ID:
        del plain["pattern"]
    if set(values := plain.get("patternProperties", {})) == {NODE_ID}:
        del plain["patternProperties"]
        plain["additionalProperties"] = values[NODE_ID]
    return plain
