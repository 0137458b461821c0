"""The tools that an app can offer its agents: those of the registry for the app, and those of its tool servers."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from typing import Any

from baobab.runtime.agents.remote.errors import ToolServerNotFound
from baobab.runtime.agents.remote.server import ToolServer, load_servers
from baobab.runtime.agents.remote.tool_description import ToolDescription
from baobab.runtime.agents.spec.app_rights import ActingNode, find_edit_issues, find_right_issues, list_edit_paths
from baobab.runtime.agents.spec.arguments import find_argument_issues
from baobab.runtime.agents.spec.issue import Issue
from baobab.runtime.agents.spec.spec import Exposure, GraphSpec, LlmNode, Mode, ToolKey, ToolRef
from baobab.runtime.agents.spec.validation import ToolOffer, narrow_offer
from baobab.runtime.functions.agent_tools import FunctionTool, load_function_tools
from baobab.storage.sql.database import Execute
from baobab.tools.core.auth.callers import Anonymous, Caller, EndUser
from baobab.tools.core.call import GraphName, Tool, ToolRunner
from baobab.tools.core.effects import Effect
from baobab.tools.core.errors import BadRequest, BaobabError, name_operations_within
from baobab.tools.core.spellings import read_ids

BOUND = "app_id"
"""The argument that is set to the agent's app; neither graphs nor models choose it."""
REMOTE = "mcp_servers_call"
"""The tool that calls those of tool servers."""
DIGEST = "digest"
"""Its argument that pins the description of the tool at the time when the call was proposed."""
SERVER = "server_id"
"""Its argument that pins the server by id: a graph may use a name, which another server may get later."""
CALL_FUNCTION, READ_FUNCTION = "functions_call", "functions_read"
"""The tools that call functions of the app: those that may change something, and those that cannot."""
_SOMEBODY = EndUser("app_000000000000", "somebody")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class ToolOffers:
    """The tools of a registry and of an app's tool servers, as graphs refer to them."""

    registry: ToolRunner
    servers: Mapping[str, ToolServer] = field(default_factory=dict)
    """The app's tool servers, by name and by id."""
    functions: Mapping[str, FunctionTool] = field(default_factory=dict)
    """The app's functions that agents may call, by name."""

    def get_offer(self, ref: ToolRef) -> ToolOffer | str:
        """Returns how a tool may be used, or why it may not be."""
        if ref.source == "function":
            function = self.functions.get(ref.name)
            if function is None:
                return f"there is no function {ref.name} with agent_tool: deploy it with that (functions_deploy)"
            effect_of_function: Effect = "read" if function.mode == "read_only" else "external"
            schema = function.input_schema
            return ToolOffer(function.mode, function.exposed_to, effect=effect_of_function, schema=schema)
        if ref.source == "mcp":
            try:
                tool = self.get_remote_tool(ref)
            except BaobabError as exc:
                return f"{ref.name} of {ref.server_id}: {exc.message}"
            return self._get_server(ref).build_offer(tool)
        registration = self.registry.find_for_graphs(ref.name)
        if registration is None or not is_usable(registration[0]):
            close = get_close_matches(
                ref.name, [name for name, tool in self.registry.tools.items() if is_usable(tool)], 1
            )
            suggestion = f"; did you mean {close[0]}?" if close else ""
            return f"there is no tool {ref.name} that an agent can call{suggestion}"
        registered_tool, graph_name = registration
        is_for_users = graph_name.for_users and registered_tool.access.admits(_SOMEBODY)
        mode: Mode = "read_only" if registered_tool.effect == "read" else "read_write"
        exposed_to: Exposure = "end_user" if is_for_users else "developer_only"
        find_arguments = partial(find_argument_issues, registered_tool, graph_name)
        find_rights = None if registered_tool.as_app is None else partial(_find_right_issues, *registration)
        effect: Effect = registered_tool.effect
        return ToolOffer(mode, exposed_to, find_arguments, find_rights, effect, _name_schema(*registration))

    def list_own_names(self, ref: ToolRef) -> dict[str, str]:
        """Returns the tool's own names of arguments by those of the graph, where they differ."""
        return {theirs: own for own, theirs in self._find_builtin(ref)[1].arguments.items()}

    def list_edit_paths(self, node: ActingNode) -> tuple[tuple[str, ...], ...]:
        """Returns the places of a node's `edit` by the names of the tool that makes its call."""
        return list_edit_paths(self._find_builtin(node.tool_ref)[1], node)

    def get_remote_tool(self, ref: ToolRef) -> ToolDescription:
        """Returns a tool of a tool server, as it was accepted. Raises ToolServerNotFound, ToolNotOffered and
        ToolChanged.
        """
        return self._get_server(ref).get_tool(ref.name)

    def _get_server(self, ref: ToolRef) -> ToolServer:
        server = self.servers.get(ref.server_id or "")
        if server is None:
            raise ToolServerNotFound
        return server

    def find_offer(self, spec: GraphSpec, ref: ToolRef) -> ToolOffer | None:
        """Finds the offer of a tool, narrowed by the graph's overrides for the reference and for its server."""
        offer = self.get_offer(ref)
        if isinstance(offer, str):
            return None
        servers = (server for server in spec.tools.mcp_servers if server.server_id == ref.server_id)
        overrides = [server.tool_overrides[ref.name] for server in servers if ref.name in server.tool_overrides]
        return narrow_offer(offer, *overrides, ref)

    def is_admitted(self, spec: GraphSpec, ref: ToolRef, caller: Caller) -> bool:
        """Returns whether a run that acts as the caller may use a tool of its graph."""
        offer = self.find_offer(spec, ref)
        is_outsider = isinstance(caller, (EndUser, Anonymous))
        return (
            offer is not None
            and self.get_calling_tool(ref).access.admits(caller)
            and not (is_outsider and offer.exposed_to == "developer_only")
        )

    def list_twins(self, ref: ToolRef) -> list[str]:
        """Lists the other names by which graphs may call the same built-in tool."""
        registration = self.registry.find_for_graphs(ref.name) if ref.source == "builtin" else None
        names = [] if registration is None else [name.name for name in registration[0].graph_names]
        return [name for name in names if name != ref.name]

    def get_calling_tool(self, ref: ToolRef) -> Tool:
        """Returns the registered tool that makes the calls of an offered one."""
        if ref.source == "function":
            function = self.functions.get(ref.name)
            is_reading = function is not None and function.mode == "read_only"
            return self.registry.find(READ_FUNCTION if is_reading else CALL_FUNCTION)
        return self.registry.find(REMOTE) if ref.source == "mcp" else self._find_builtin(ref)[0]

    def _find_builtin(self, ref: ToolRef) -> tuple[Tool, GraphName]:
        return self.registry.find_for_graphs(ref.name) or (self.registry.find(ref.name), GraphName(ref.name))

    def get_server_name(self, ref: ToolRef) -> str | None:
        """Returns the name of a tool's server; None for a built-in tool."""
        server = self.servers.get(ref.server_id or "")
        return ref.server_id if server is None else server.name

    def describe_tool(self, ref: ToolRef, name: str) -> dict[str, Any]:
        """Describes an offered tool for a model. name: what the model calls it."""
        if ref.source == "function":
            app_function = self.functions[ref.name]
            parameters = {"type": "object", **app_function.input_schema}
            shown_function = {"name": name, "description": app_function.description, "parameters": parameters}
            return {"type": "function", "function": shown_function}
        if ref.source != "mcp":
            return describe_function(*self._find_builtin(ref), name)
        tool, server = self.get_remote_tool(ref), self._get_server(ref)
        description = f"A tool of the server {server.name}, which says of it: {tool.description}"
        parameters = {"type": "object", **tool.input_schema}
        function = {"name": name, "description": description, "parameters": parameters}
        return {"type": "function", "function": function}

    def build_arguments(self, ref: ToolRef, app_id: str, arguments_of_run: Mapping[str, Any]) -> dict[str, Any]:
        """Builds the arguments of the tool that makes a call: those of the run, and those that the run does not
        choose.
        """
        if ref.source == "function":
            return {BOUND: app_id, "name": ref.name, "arguments": dict(arguments_of_run)}
        if ref.source != "mcp":
            tool, graph_name = self._find_builtin(ref)
            if tool.app_parameter == BOUND and arguments_of_run.get(BOUND, app_id) != app_id:
                raise BadRequest(f"`{BOUND}` is bound to the agent's own app.", remediation=f"Leave `{BOUND}` out.")
            own_names = {field_name: own for own, field_name in graph_name.arguments.items()}
            arguments = read_ids(tool, {own_names.get(name, name): each for name, each in arguments_of_run.items()})
            return {**arguments, BOUND: app_id} if tool.app_parameter == BOUND else arguments
        try:
            digest = self.get_remote_tool(ref).digest
        except BaobabError:
            # A call that was made before is recognised without the digest, and no new call is made with this one.
            digest = "none"
        server = self.servers.get(ref.server_id or "")
        pinned_values = {SERVER: ref.server_id if server is None else server.id, "tool": ref.name, DIGEST: digest}
        return {BOUND: app_id, **pinned_values, "arguments": dict(arguments_of_run)}


def _name_schema(tool: Tool, graph_name: GraphName) -> dict[str, Any]:
    """Returns the schema of a tool's arguments by the names of graphs."""
    properties = tool.input_schema.get("properties", {})
    return {"properties": {graph_name.arguments.get(own, own): about for own, about in properties.items()}}


def _find_right_issues(tool: Tool, graph_name: GraphName, node: ActingNode) -> Iterator[Issue]:
    for issue in find_right_issues(tool, graph_name, node.args_template):
        yield Issue(("args_template", *issue.path), issue.message)
    yield from find_edit_issues(tool, graph_name, node)


async def load_offers(registry: ToolRunner, execute: Execute, app_id: str) -> ToolOffers:
    """Loads the tools that an app offers its agents. execute: of the database of the app's region."""
    return ToolOffers(registry, await load_servers(execute, app_id), await load_function_tools(execute, app_id))


def is_usable(tool: Tool) -> bool:
    """Returns whether agents may call a tool: it must be bound to an app or be open to linked apps, and it must
    neither grant rights nor act as a person. Functions are called as such, by their own names.
    """
    if tool.name in (CALL_FUNCTION, READ_FUNCTION):
        return False
    if tool.toolset.name == "agents":
        return tool.name == "interrupt"
    return (tool.app_parameter == BOUND or tool.for_linked_apps) and not tool.grants and tool.mcp


def function_names(spec: GraphSpec) -> dict[ToolKey, str]:
    """Returns the names by which models call the tools of a graph: the tools' own names where they are unique in the
    graph.

    Otherwise the tools of tool servers get the name of their server as a prefix.
    """
    refs = {ref.key: ref for node in spec.nodes.values() if isinstance(node, LlmNode) for ref in node.tools}
    plain_names = {key: _plain_name(ref.name, _LONGEST_NAME) for key, ref in refs.items()}
    prefixed_names = {key: _prefix_name(ref) for key, ref in refs.items()}
    plain_counts = Counter(plain_names.values())
    names = {
        key: plain_names[key] if ref.server_id is None or plain_counts[plain_names[key]] == 1 else prefixed_names[key]
        for key, ref in refs.items()
    }
    name_counts = Counter(names.values())
    # Names of servers and their tools are arbitrary text, so prefixed names may still be equal: these get a digest.
    return {
        key: name if name_counts[name] == 1 or refs[key].server_id is None else _mark_name(refs[key])
        for key, name in names.items()
    }


def _plain_name(text: str, longest: int) -> str:
    return _NO_NAME.sub("_", text)[:longest]


def _prefix_name(ref: ToolRef) -> str:
    return f"{_plain_name(ref.server_id or '', 20)}_{_plain_name(ref.name, _LONGEST_NAME - 21)}"


def _mark_name(ref: ToolRef) -> str:
    mark = sha256(f"{ref.server_id}\0{ref.name}".encode()).hexdigest()[:8]
    return f"{_plain_name(ref.name, _LONGEST_NAME - 9)}_{mark}"


def describe_function(tool: Tool, graph_name: GraphName, name: str) -> dict[str, Any]:
    """Describes a tool for a model, in the form of OpenAI's chat completions."""
    schema, theirs = tool.build_input_schema("agent"), graph_name.arguments
    fields = {field: about for field, about in schema.get("properties", {}).items() if field != BOUND}
    properties = {theirs.get(field, field): about for field, about in fields.items()}
    required_fields = [theirs.get(field, field) for field in schema.get("required", ()) if field != BOUND]
    parameters = {**schema, "properties": properties, "required": required_fields}
    function = {"name": name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": name_operations_within(function)}
