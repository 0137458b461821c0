"""The app's right in a graph: which nodes may lend it to their call, what may be changed of such a call, and whether an
agent still lends it.

Such a node fixes the tool and everything that says what is written where; placeholders fill values only.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import bindparam, select

from baobab.runtime.agents.spec.issue import Issue, Path, quote_name
from baobab.runtime.agents.spec.spec import GraphSpec, MapNode, NamedApprovers, ToolNode
from baobab.runtime.agents.spec.templates import Template, TemplateError, parse_names
from baobab.runtime.agents.tables import agents
from baobab.storage.sql.database import Execute
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.auth.deciders import STARTER, USER, Approvers, person
from baobab.tools.core.auth.directory import App
from baobab.tools.core.call import GraphName, Tool
from baobab.tools.core.errors import AppPaused, Forbidden
from baobab.tools.core.guard.app_rights import AsApp

ActingNode = ToolNode | MapNode
# Whoever signs up is a user, and has the role `user`: approvals by users would be approvals by anybody.
_INCLUDE_STARTER = (STARTER, USER, f"role:{USER}")
_FILTER = re.compile(r"(not\.)?(eq|neq|gt|gte|lt|lte|like|ilike|is|isdistinct)\.")
_FIND_AGENT = select(agents.c.name, agents.c.status, agents.c.app_rights).where(
    agents.c.app_id == bindparam("app"), agents.c.id == bindparam("agent"), agents.c.deleted_at.is_(None)
)
_GROUPS = ("and", "or", "not.and", "not.or")


class AppRightWithdrawn(Forbidden):
    code = "APP_RIGHT_WITHDRAWN"
    summary = "The agent no longer lends the app's right to this call, so it is not made."
    remediation = "Start a new run. If the agent is disabled or has changed, ask an admin of the app."


# --- what a graph may say -------------------------------------------------------------------------------------------


def find_right_issues(tool: Tool, graph_name: GraphName, arguments: Mapping[str, Any]) -> Iterator[Issue]:
    """Finds arguments that say more than values with placeholders. arguments: templates by the names of the graph."""
    as_app = tool.as_app
    if as_app is None:
        return
    own_names = {theirs: own for own, theirs in graph_name.arguments.items()}
    for name, template in arguments.items():
        own = own_names.get(name, name)
        if own in as_app.literal:
            if has_placeholder(template):
                yield Issue((name,), "must be written in the graph, without a placeholder, because of run_as")
        elif own in as_app.fills:
            yield from _find_filled_issues(as_app, own, name, template)
        elif own in tool.arguments.model_fields:
            names = [graph_name.arguments.get(field, field) for field in (*as_app.literal, *as_app.fills)]
            yield Issue((name,), f"cannot be given with run_as; leave it out. What can: {', '.join(names)}")


def _find_filled_issues(as_app: AsApp, own: str, name: str, template: Any) -> Iterator[Issue]:
    if own in as_app.columns:
        rows = template if isinstance(template, list) else [template]
        if not all(isinstance(row, dict) for row in rows):
            message = (
                "must be an object that names its columns in the graph because of run_as; placeholders fill values"
            )
            yield Issue((name,), message)
    elif own in as_app.filters:
        yield from _find_filter_issues(name, template)
    elif own in as_app.names and _begins_with_placeholder(template):
        message = 'must begin with text of the graph because of run_as, such as "refunds:{{ input.order }}"'
        yield Issue((name,), message)


def _find_filter_issues(name: str, filters: Any) -> Iterator[Issue]:
    if not isinstance(filters, dict):
        yield Issue((name,), "must name its columns in the graph because of run_as: an object of filters")
        return
    for column, condition in filters.items():
        for text in condition if isinstance(condition, list) else [condition]:
            if not has_placeholder(text):
                continue
            if column in _GROUPS:
                message = "must be written in the graph, without a placeholder, because of run_as: it names columns"
                yield Issue((name, column), message)
            elif not isinstance(text, str) or not _FILTER.match(text):
                message = 'must begin with an operator for one value because of run_as, such as "eq.{{ input.id }}"'
                yield Issue((name, column), message)


def has_placeholder(tree: Any) -> bool:
    """Returns whether a text within a JSON tree has a placeholder. One that is no template counts as having one."""
    if isinstance(tree, str):
        try:
            return bool(parse_names(tree))
        except TemplateError:
            return True
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return any(has_placeholder(child) for child in children)


def _begins_with_placeholder(template: Any) -> bool:
    if not isinstance(template, str):
        return True
    try:
        pieces = Template(template).pieces
    except TemplateError:
        return True
    return not pieces or not isinstance(pieces[0], str)


def includes_starter(approvers: NamedApprovers) -> bool:
    """Returns whether approvers are such that whoever starts a run may be one of them by that alone."""
    return Approvers.parse(approvers).of in _INCLUDE_STARTER


def find_approver_issues(node: ActingNode) -> Iterator[Issue]:
    """Finds why the approvers of a node that lends the app's right would not be somebody else than the starter."""
    others = 'name others than whoever starts the run: {"role": "staff"}, "member" or "admin"'
    if node.approvers is None:
        yield Issue(("approvers",), f"is required by run_as: {others}")
    elif includes_starter(node.approvers):
        yield Issue(("approvers",), f"must exclude whoever starts the run because of run_as: {others}")


def find_edit_issues(tool: Tool, graph_name: GraphName, node: ActingNode) -> Iterator[Issue]:
    """Finds fields of `edit` that are no value of the node's arguments, or say more than a value."""
    as_app = tool.as_app or AsApp()
    own_names = {theirs: own for own, theirs in graph_name.arguments.items()}
    for index, field in enumerate(node.edit):
        path, value = field.split("."), node.args_template
        own = own_names.get(path[0], path[0])
        for part in path:
            value = _step_into(value, part)
        if value is None:
            yield Issue(("edit", index), f"{quote_name(field)} is not in args_template")
        elif own not in as_app.fills or own in (*as_app.filters, *as_app.names):
            yield Issue(("edit", index), f"{quote_name(field)} is fixed by run_as: only values can be changed")
        elif isinstance(value, dict | list):
            message = f"{quote_name(field)} is not one value: name those within it, as {quote_name(field + '.NAME')}"
            yield Issue(("edit", index), message)


def _step_into(tree: Any, part: str) -> Any:
    if isinstance(tree, dict):
        return tree.get(part)
    if isinstance(tree, list) and part.isascii() and part.isdigit() and int(part) < len(tree):
        return tree[int(part)]
    return None


def list_edit_paths(graph_name: GraphName, node: ActingNode) -> tuple[tuple[str, ...], ...]:
    """Returns the places of `edit` by the tool's own names of arguments."""
    own_names = {theirs: own for own, theirs in graph_name.arguments.items()}
    paths = (field.split(".") for field in node.edit)
    return tuple((own_names.get(path[0], path[0]), *path[1:]) for path in paths)


def list_changed_fields(before: Any, after: Any, path: Path = ()) -> Iterator[tuple[str, ...]]:
    """Yields the places at which two JSON trees differ: of objects of the same names and lists of one length, the
    places within. A name that only one of them has changes the object.
    """
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for name in before:
            yield from list_changed_fields(before[name], after[name], (*path, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from list_changed_fields(one, other, (*path, index))
    elif type(before) is not type(after) or before != after:
        yield tuple(map(str, path))


def is_covered(path: Sequence[str], places: Sequence[Sequence[str]]) -> bool:
    """Returns whether a place is one of these places, or within one."""
    return any(list(path[: len(place)]) == list(place) for place in places)


# --- what an agent grants -------------------------------------------------------------------------------------------


def digest_node(node: ActingNode) -> str:
    """Computes the digest of what a node says. Fields that a later version adds do not change it."""
    content = node.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def list_lenders(spec: GraphSpec) -> dict[str, ActingNode]:
    """Returns the nodes of a graph that lend the app's right, by id."""
    return {node_id: node for node_id, node in spec.nodes.items() if isinstance(node, ActingNode) and node.run_as}


def grant_rights(spec: GraphSpec, before: Mapping[str, Any] | None, by: Caller, at: datetime) -> dict[str, Any] | None:
    """Returns the column of an agent that says which nodes lend the app's right, and who allowed it and when.

    before: the column until now; nodes that have not changed keep their grant. None if no node lends it.
    """
    grants: dict[str, Any] = {}
    for node_id, node in list_lenders(spec).items():
        digest = digest_node(node)
        earlier = (before or {}).get(node_id)
        is_same = earlier is not None and earlier["digest"] == digest
        grants[node_id] = earlier if is_same else {"digest": digest, "by": person(by), "at": at.isoformat()}
    return grants or None


async def require_app_right(execute: Execute, app: App, agent_id: str, node_id: str, digest: str) -> None:
    """Raises AppPaused or AppRightWithdrawn unless the agent still lends the app's right to the call of this node.

    execute: of the database of the app's region. digest: of the node as the run has it.
    """
    if app.is_paused:
        raise AppPaused(app.paused_reason)
    rows = (await execute(_FIND_AGENT, {"app": app.id, "agent": agent_id})).all()
    if not rows:
        raise AppRightWithdrawn("The agent that lent the app's right to this call was deleted, so it is not made.")
    row = rows[0]
    if row.status != "active":
        raise AppRightWithdrawn(f"The agent {row.name} is disabled, so it lends the app's right to no call.")
    grant = (row.app_rights or {}).get(node_id)
    if grant is None or grant["digest"] != digest:
        raise AppRightWithdrawn(
            f"The agent {row.name} no longer has the node {quote_name(node_id)} as this run has it, so the app's right "
            "is not lent to its call."
        )
