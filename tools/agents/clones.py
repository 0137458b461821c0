"""What a clone of an app has of its agents: the graphs and the addresses of tool servers, neither runs nor secrets."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement

from baobab.runtime.agents.remote.tables import tool_servers
from baobab.runtime.agents.tables import agents
from baobab.tools.core.app_clones import Ability, ClonedRows, CloneRule, Cloning, Row, never_clone


def _copy_agent(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    graph = _name_servers(cloning, row["graph_spec"])
    is_off = row["visibility"] == "public" or bool(find_lenders(row["graph_spec"]))
    values = {
        "id": cloning.derive_id(agents.name, row["id"]),
        "graph_spec": graph,
        "status": "disabled" if is_off else row["status"],
        # Whoever switches it on says that they have looked, and lends the right anew.
        "safety_acknowledged": False,
        "app_rights": None,
        "created_by": cloning.account_id,
        "created_at": cloning.started_at,
        "updated_at": cloning.started_at,
    }
    return {**row, **values}


def _copy_server(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": cloning.derive_id(tool_servers.name, row["id"]),
        "auth": None,
        "credential": None,
        # Nothing of it is called until the owner of the copy accepts its tools.
        "accepted": {},
        "seen": None,
        "status": "unhealthy",
        "problem": "It was copied from a template. Nothing is called until you accept its tools.",
        "last_health": None,
        "created_at": cloning.started_at,
        "updated_at": cloning.started_at,
    }
    return {**row, **values}


def _name_servers(cloning: Cloning, tree: Any) -> Any:
    """Returns a graph in which the tool servers of the source are those of the copy."""
    if isinstance(tree, dict):
        return {
            name: cloning.derive_id(tool_servers.name, value)
            if name == "server_id" and isinstance(value, str)
            else _name_servers(cloning, value)
            for name, value in tree.items()
        }
    return [_name_servers(cloning, item) for item in tree] if isinstance(tree, list) else tree


def find_lenders(graph: Any) -> list[str]:
    """Returns the ids of a graph's nodes that call with the app's right."""
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if isinstance(nodes, dict):
        named_nodes = list(nodes.items())
    else:
        named_nodes = [(each.get("id", ""), each) for each in nodes or [] if isinstance(each, dict)]
    return [str(node_id) for node_id, node in named_nodes if isinstance(node, dict) and node.get("run_as") == "app"]


def _list_agent_abilities(row: Row) -> Iterable[Ability]:
    name, is_on = row["name"], row["status"] == "active"
    if row["visibility"] == "public":
        yield Ability("public_agent", name, f"Anyone may run the agent {name}.", is_on, "agents_update")
    lenders = find_lenders(row["graph_spec"])
    if lenders:
        says = f"The agent {name} calls with the app's right, in: {', '.join(lenders)}."
        yield Ability("app_right", name, says, is_on and bool(row["app_rights"]), "agents_update")


def _list_server_abilities(row: Row) -> Iterable[Ability]:
    says = f"Agents send what they know to the tool server {row['url']}."
    yield Ability("tool_server", row["name"], says, bool(row["accepted"]), "mcp_servers_probe")


def _is_kept(app_id: str) -> ColumnElement[bool]:
    del app_id
    return agents.c.deleted_at.is_(None)


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        tool_servers,
        "replaying_config",
        "the addresses of tool servers, without credentials; their tools are called once you accept them",
        _copy_server,
        list_abilities=_list_server_abilities,
    ),
    ClonedRows(
        agents,
        "replaying_config",
        "agents with their graphs; public ones, and those that call with the app's right, are switched off",
        _copy_agent,
        where=_is_kept,
        list_abilities=_list_agent_abilities,
    ),
    *never_clone("runs and their history", "agent_runs", "agent_events", "agent_checkpoints", "agent_pieces"),
    *never_clone("runs and their history", "agent_writes", "agent_model_calls", "agent_live_texts", "agent_run_counts"),
    *never_clone("threads and memory", "agent_threads", "agent_messages"),
    *never_clone("credentials", "agent_webhook_secrets", "agent_stream_tokens"),
)
