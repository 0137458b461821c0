"""Tables, columns, collections and models that the nodes of a graph name, and that the app does not have."""

from collections.abc import Iterator, Mapping
from typing import Any

from baobab.runtime.agents.spec.issue import MAX_ISSUES, Path
from baobab.runtime.agents.spec.shape import suggest_name
from baobab.runtime.agents.spec.spec import GraphSpec, LlmNode, MapNode, ToolNode
from baobab.runtime.agents.spec.table_uses import TableUse, is_fixed, list_table_uses
from baobab.runtime.gateway.errors import ModelNotFound
from baobab.tools.agents.schemas.agents import Issue
from baobab.tools.core import Call, Forbidden
from baobab.tools.core.guard.wording import quote_text

_LONGEST = 64
NamedPlace = tuple[Path, str]


async def find_unknown_names(call: Call, spec: GraphSpec, default_model: str | None) -> list[Issue]:
    """Warns of names without placeholders. They are no mistakes yet: what they name may be made after the agent.

    default_model: the agent's.
    """
    issues = await _find_unknown_models(call, spec, default_model)
    if uses := list(list_table_uses(spec, call.registry)):
        schema = (await call.invoke("schema_get", app_id=call.require_app().id))["schema"]
        tables = [(use.path, use.table) for use in uses]
        issues += _find_unknown("table", tables, [*schema["tables"], *schema.get("views", ())])
        issues += _find_unknown_columns(uses, schema["tables"])
    if collections := list(_list_collections(call, spec)):
        rows = await call.invoke("rag_collections_list", app_id=call.require_app().id)
        issues += _find_unknown("collection", collections, [row["name"] for row in rows])
    return issues[:MAX_ISSUES]


def _find_unknown_columns(uses: list[TableUse], tables: Mapping[str, Any]) -> Iterator[Issue]:
    for use in uses:
        known_names = list(tables.get(use.table, {}).get("columns", ()))
        for path, name in use.columns:
            if known_names and name not in known_names:
                table, suggestion = quote_text(use.table), suggest_name(name[:_LONGEST], known_names)
                message = f"{table} has no column {quote_text(name)}, so that the call would be refused{suggestion}"
                yield {"path": list(path), "message": message}


def _list_collections(call: Call, spec: GraphSpec) -> Iterator[NamedPlace]:
    """Lists the fixed names of collections, with their paths."""
    for node_id, node in spec.nodes.items():
        if not isinstance(node, ToolNode | MapNode) or node.tool_ref.source != "builtin":
            continue
        registration = call.registry.find_for_graphs(node.tool_ref.name)
        value: Any = node.args_template.get("name")
        if registration is None or not is_fixed(value):
            continue
        tool = registration[0]
        if tool.toolset.name == "rag" and tool.name != "rag_collections_create":
            yield ("nodes", node_id, "args_template", "name"), value


def _find_unknown(kind: str, named: list[NamedPlace], known_names: list[str]) -> Iterator[Issue]:
    for path, name in named:
        if name not in known_names:
            suggestion = suggest_name(name[:_LONGEST], known_names)
            yield {"path": list(path), "message": f"the app has no {kind} {quote_text(name)}{suggestion}"}


async def _find_unknown_models(call: Call, spec: GraphSpec, default_model: str | None) -> list[Issue]:
    """Warns of models that the app cannot call now. A model server may list them later, and a key may bring them."""
    paths_by_model: dict[str, list[Path]] = {}
    for node_id, node in spec.nodes.items():
        if isinstance(node, LlmNode) and node.model is not None:
            paths_by_model.setdefault(node.model, []).append(("nodes", node_id, "model"))
        elif isinstance(node, LlmNode) and default_model is not None:
            paths_by_model.setdefault(default_model, [("default_model",)])
    issues: list[Issue] = []
    for model, paths in paths_by_model.items():
        if (message := await _describe_missing_model(call, model)) is not None:
            issues += [{"path": list(path), "message": message} for path in paths]
    return issues


async def _describe_missing_model(call: Call, model: str) -> str | None:
    app_id = call.require_app().id
    try:
        await call.invoke("ai_model", app_id=app_id, model_id=model)
    except ModelNotFound:
        answer = await call.invoke("ai_models", app_id=app_id)
        suggestion = suggest_name(model[:_LONGEST], [each["id"] for each in answer["models"]])
        return f"the app can call no model {quote_text(model)} now{suggestion}"
    except Forbidden:
        return f"the app's settings do not allow the model {quote_text(model)}"
    return None
