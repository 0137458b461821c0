"""Writes of a graph's nodes that no policy lets users or visitors make, who may run the agent."""

from collections.abc import Iterator, Mapping
from typing import Any

from baobab.runtime.agents.spec.issue import MAX_ISSUES, Path
from baobab.runtime.agents.spec.spec import GraphSpec, LlmNode, MapNode, ToolNode
from baobab.runtime.agents.spec.table_uses import is_fixed
from baobab.runtime.agents.spec.validation import list_node_refs
from baobab.tools.agents.schemas.agents import Issue
from baobab.tools.core import Call

_COMMANDS = {
    "data_insert": "INSERT",
    "data_update": "UPDATE",
    "data_update_many": "UPDATE",
    "data_delete": "DELETE",
    "data_delete_many": "DELETE",
}
_VERBS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_BATCH = "data_batch"
Write = tuple[Path, str | None, str]
"""Where a node names the write, its table, and its command; no table where only the run says which."""


async def find_barred_writes(call: Call, spec: GraphSpec, visibility: str) -> list[Issue]:
    """Warns of writes of rows that end in no row or in a refusal whoever of the users or visitors runs the agent.

    Only whether there is a policy for the command counts, not its condition. A node that acts as the app needs none.
    """
    writes = [] if visibility == "private" else list(_list_writes(call, spec))
    if not writes:
        return []
    app_id = call.require_app().id
    listing = await call.invoke("rls_list", app_id=app_id, with_slow_statements=False)
    tables = (await call.invoke("schema_get", app_id=app_id))["schema"]["tables"]
    roles = {"user": "users"} | ({"anon": "visitors"} if visibility == "public" else {})
    issues: list[Issue] = []
    for path, table, command in writes:
        # A table that does not exist is warned of elsewhere.
        candidates = list(tables) if table is None else [name for name in tables if name == table]
        barred_callers = [
            word
            for role, word in roles.items()
            if candidates and not any(_is_opened(listing, name, command, role) for name in candidates)
        ]
        if barred_callers:
            owner = "any table" if table is None else f"`{table}`"
            message = f"no policy of {owner} lets {' or '.join(barred_callers)} {_VERBS[command]} rows: {_advise(path)}"
            issues.append({"path": list(path), "message": message})
    return issues[:MAX_ISSUES]


def _advise(path: Path) -> str:
    """Names the ways to make a write possible. Batches and models' calls cannot use the app's right."""
    has_right = path[2:] == ("args_template", "table")
    right = "set run_as: app with approvers on the node" if has_right else "write in a tool node with run_as: app"
    return f"open just the rows that they may write with rls_create_policy, or {right}"


def _list_writes(call: Call, spec: GraphSpec) -> Iterator[Write]:
    for node_id, node in spec.nodes.items():
        if isinstance(node, LlmNode):
            for path, ref in list_node_refs(node):
                command = _COMMANDS.get(_find_own_name(call, ref.name)) if ref.source == "builtin" else None
                if command is not None:
                    yield ("nodes", node_id, *path), None, command
        elif isinstance(node, ToolNode | MapNode) and node.run_as is None and node.tool_ref.source == "builtin":
            yield from _list_node_writes(("nodes", node_id, "args_template"), call, node)


def _list_node_writes(path: Path, call: Call, node: ToolNode | MapNode) -> Iterator[Write]:
    own_name, arguments = _find_own_name(call, node.tool_ref.name), node.args_template
    if own_name in _COMMANDS and is_fixed(arguments.get("table")):
        yield (*path, "table"), str(arguments["table"]), _COMMANDS[own_name]
    writes: Any = arguments.get("writes") if own_name == _BATCH else None
    for index, write in enumerate(writes if isinstance(writes, list) else ()):
        command = str(write.get("op")).upper() if isinstance(write, dict) else ""
        if command in _VERBS and is_fixed(write.get("table")):
            yield (*path, "writes", index, "table"), write["table"], command


def _find_own_name(call: Call, name: str) -> str:
    registration = call.registry.find_for_graphs(name)
    return name if registration is None else registration[0].name


def _is_opened(listing: Mapping[str, Any], table: str, command: str, role: str) -> bool:
    """Returns whether a permissive policy of a table is for a command and a role, or the table needs none."""
    return table not in listing["tables_with_rls"] or any(
        policy["tablename"] == table
        and policy["permissive"] == "PERMISSIVE"
        and policy["cmd"] in (command, "ALL")
        and role in policy["roles"]
        for policy in listing["policies"]
    )
