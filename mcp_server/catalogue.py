"""The catalogue: which tools a client may see and call, described in the format of the protocol."""

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import mcp_types as types
from pydantic_core import from_json, to_json

from baobab.mcp_server import meta_tools
from baobab.mcp_server.mcp_client import McpClient
from baobab.mcp_server.search import ToolIndex
from baobab.mcp_server.shortening import READ_ON
from baobab.storage.secrets import Vault
from baobab.tools.core.auth import key_limits
from baobab.tools.core.auth.callers import Account, Caller, ScopedKey
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import Naming, name_operations, name_operations_within
from baobab.tools.core.pagination import decode_cursor, encode_cursor
from baobab.tools.core.registry import Registry
from baobab.tools.core.schema import lean_input, lean_output

MOST_AT_START = 25
_FEW_AT_START = 8
"""A caller who may call fewer tools of the start set is also shown those that start for narrow callers."""
_LONG_SCHEMA = 600
_MANY_FIELDS = 4
_MOST_NAMES = 12
# In characters: what the first tool that was found may take, and all where details are wanted.
_ROOM_OF_FIRST, _ROOM_OF_DETAILS = 1500, 12_000
PAGE = 100
_REMEMBERED = 200
"""The most offers of single tenants in memory. The offers for everybody are few and all stay in memory."""


@dataclass(frozen=True)
class Page:
    """A page of the list, encoded: the JSON text of its tools, and the cursor of the next page."""

    tools: bytes
    next_cursor: str | None


class Offer:
    """The tools that clients of one kind are offered through one view."""

    def __init__(
        self,
        tools: Sequence[Tool],
        client: McpClient,
        extra: Sequence[types.Tool],
        vault: Vault,
        naming: Naming,
        places: Mapping[bytes, str],
    ) -> None:
        """naming: returns the name of an operation in the texts of tools. places: by schema, the tool in which it is
        shown, for long schemas of arguments that several tools take.
        """
        self._places = places
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self._naming = naming
        self._has_fixed_app = client.app_id is not None
        self._view = client.view
        self._extra = extra
        self._vault = vault
        self._pages: dict[int, Page] = {}

    @cached_property
    def families(self) -> list[dict[str, str]]:
        """The toolsets of these tools, each with its description."""
        families = {tool.toolset.name: tool.toolset.description for tool in self.tools.values()}
        return [{"name": name, "description": description} for name, description in sorted(families.items())]

    @cached_property
    def has_search(self) -> bool:
        """Whether the list shows only some tools, and the others are found by search."""
        return self._view.shows_start_set and len(self.tools) + len(self._extra) > MOST_AT_START

    @cached_property
    def listed_tools(self) -> list[dict[str, Any]]:
        """The descriptions of the tools on the list, sorted by name."""
        first = [tool for tool in self.tools.values() if tool.start is True]
        starting = [tool for tool in self.tools.values() if tool.start] if len(first) < _FEW_AT_START else first
        tools = starting if self.has_search else list(self.tools.values())
        descriptions = meta_tools.DESCRIBED if self.has_search else []
        descriptions = descriptions + [self.describe(tool, text=not self._shows_results) for tool in tools]
        descriptions += [from_json(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in self._extra]
        return sorted(descriptions, key=lambda tool: str(tool["name"]))

    def describe(self, tool: Tool, *, text: bool) -> dict[str, Any]:
        """Describes a tool as lists and searches show it. text: leave out the schema of its results."""
        schema = name_operations_within(lean_input(self._point_to_long(tool)), self._naming)
        for name, value in tool.mcp_defaults.items():
            schema["properties"][name] = {**schema["properties"][name], "default": value}
        if self._has_fixed_app and tool.app_parameter == "app_id":
            schema = _remove_property(schema, "app_id")
        description: dict[str, Any] = {
            "name": tool.name,
            "title": tool.title,
            "description": name_operations(tool.description, self._naming) + self._render_example(tool),
            "inputSchema": schema,
            "annotations": _render_annotations(tool),
        }
        if tool.effect == "read" and (tool.taints or not tool.start):
            # The list of the most used tools says it only of those whose results are often long.
            schema["properties"] = {
                **schema["properties"],
                READ_ON: {"type": "string", "description": "From a cut value."},
            }
        if not text and is_object(tool):
            description["outputSchema"] = _render_output_schema(tool)
        return description

    def _render_example(self, tool: Tool) -> str:
        example = build_example(tool)
        if not example:
            return ""
        beside = " (beside app_id)" if tool.app_parameter == "app_id" and not self._has_fixed_app else ""
        return f"\n\nExample{beside}: {to_json(example).decode()}"

    def _point_to_long(self, tool: Tool) -> dict[str, Any]:
        """Returns the schema of a tool's arguments, with a pointer for each long one that is shown in another tool."""
        properties, whole_schema = {}, tool.build_input_schema("mcp")
        for name, schema in whole_schema["properties"].items():
            place = self._places.get(_encode_schema(schema), tool.name)
            if place == tool.name:
                properties[name] = schema
            else:
                description = f"{schema.get('description', '')} Its schema is in {place}.".strip()
                kind = {"type": schema["type"]} if "type" in schema else {}
                properties[name] = {**kind, "description": description}
        return {**whole_schema, "properties": properties}

    def describe_found(self, tools: Sequence[Tool], *, detail: bool) -> list[dict[str, Any]]:
        """Describes tools that were searched for: the first with the schema of its arguments unless that is long, the
        others in a line. detail: all of them whole, as far as that does not fill a context.
        """
        descriptions: list[dict[str, Any]] = []
        room = _ROOM_OF_DETAILS if detail else _ROOM_OF_FIRST
        for tool in tools:
            entry = {
                "name": tool.name,
                "call": self._render_call(tool),
                "does": name_operations(tool.summary, self._naming),
            }
            whole = self.describe(tool, text=True)
            length = len(to_json(whole))
            if (detail or not descriptions) and (length <= room or (detail and not descriptions)):
                entry = {"name": tool.name, "description": whole["description"], "inputSchema": whole["inputSchema"]}
                room -= length
            descriptions.append(entry)
        return descriptions

    def _render_call(self, tool: Tool) -> str:
        """Renders how a tool is called in short, such as `kv_put(app_id, key, value, ttl?)`."""
        required_names = tool.input_schema.get("required", ())
        names = [
            name if name in required_names else f"{name}?"
            for name in tool.input_schema["properties"]
            if not (self._has_fixed_app and name == tool.app_parameter == "app_id")
        ]
        further = ["..."] if len(names) > _MOST_NAMES else []
        return f"{tool.name}({', '.join([*names[:_MOST_NAMES], *further])})"

    @property
    def _shows_results(self) -> bool:
        """Whether the list has the schemas of results. They are what a model reads last: at the start, they would be a
        third of the list.
        """
        return not self.has_search and self._view.results != "text"

    async def get_page(self, cursor: str | None) -> Page:
        """Returns one page of the list. Raises CursorInvalid for a cursor of another list."""
        if not self._pages and self._shows_results:
            await asyncio.to_thread(self._build_output_schemas)
        at = 0 if cursor is None else int(decode_cursor(self._vault, self._cursor_context, cursor)[0])
        page = self._pages.get(at)
        if page is None:
            descriptions, following = self.listed_tools[at : at + PAGE], at + PAGE
            next_cursor = (
                encode_cursor(self._vault, self._cursor_context, str(following))
                if following < len(self.listed_tools)
                else None
            )
            # By its position and not by its cursor, since one cursor has many spellings in base64.
            page = self._pages[at] = Page(to_json(descriptions), next_cursor)
        return page

    def _build_output_schemas(self) -> None:
        for tool in self.tools.values():
            _ = tool.output_schema

    @cached_property
    def _cursor_context(self) -> str:
        """Returns what a cursor is bound to: the list that it comes from."""
        return "mcp:tools:" + ",".join(tool["name"] for tool in self.listed_tools)


class Catalogue:
    def __init__(self, registry: Registry, extra: Sequence[types.Tool] = ()) -> None:
        self._registry = registry
        self._extra = extra
        self._offers: dict[str | None, dict[Hashable, Offer]] = {}
        """By tenant; None for the offers that all tenants share."""
        self.index = ToolIndex(registry.tools.values())

    def get_offer(self, client: McpClient) -> Offer:
        # The key leaves out the app and the length: a client that names many must not displace the offers of others.
        view = replace(client.view, app_id=None, max_characters=0)
        kind = (_offer_key(client.caller), client.role == APPROVER, view, client.app_id is not None)
        tenant = _tenant(client)
        offer = self._offers.get(tenant, {}).get(kind)
        if offer is None:
            tools = [
                tool for tool in self._registry.visible_to(client.caller, client.role) if _is_in_view(tool, client)
            ]
            naming = self._registry.name_by_tool
            offer = Offer(tools, client, self._extra, self._registry.services.vault, naming, self._places)
            self._offers.setdefault(tenant, {})[kind] = offer
            if tenant is not None:
                self._forget()
        return offer

    @cached_property
    def _places(self) -> Mapping[bytes, str]:
        return place_long_schemas(tool for tool in self._registry.tools.values() if tool.mcp)

    def find_closed(self, client: McpClient) -> dict[str, str]:
        """Returns the toolsets that the address names but that have no tool for this client, each with the reason."""
        if client.view.toolsets is None:
            return {}
        open_toolsets = {family["name"] for family in self.get_offer(client).families}
        return {name: self._explain_closed(name, client) for name in sorted(client.view.toolsets - open_toolsets)}

    def list_open(self, client: McpClient) -> list[str]:
        """Returns the toolsets that an address could name for this client."""
        client_of_all = replace(client, view=replace(client.view, toolsets=None, every=True))
        return [family["name"] for family in self.get_offer(client_of_all).families]

    def _explain_closed(self, name: str, client: McpClient) -> str:
        tools = [tool for tool in self._registry.tools.values() if tool.mcp and tool.toolset.name == name]
        if not tools:
            return "none of its tools is for models."
        admitting = [tool for tool in tools if tool.access.admits(client.caller)]
        if client.role == APPROVER:
            return "whoever has the role `approver` only decides about calls."
        if not admitting:
            return f"it takes another credential. {tools[0].access.description}"
        exceeded_limits = [key_limits.find_exceeded_limit(client.caller, tool) for tool in admitting]
        # Whatever the limits of the key leave, the view does not show.
        return (
            exceeded_limits[0]
            if exceeded_limits[0] and all(exceeded_limits)
            else "with read_only, none of its tools is left."
        )

    def _forget(self) -> None:
        """Drops the oldest offer of the tenant that has the most, if there are too many."""
        offers = {tenant: by_kind for tenant, by_kind in self._offers.items() if tenant is not None}
        if sum(map(len, offers.values())) > _REMEMBERED:
            most = max(offers, key=lambda tenant: len(offers[tenant]))
            del offers[most][next(iter(offers[most]))]
            if not offers[most]:
                del self._offers[most]


def is_object(tool: Tool) -> bool:
    """Returns whether the tool's results can be structured content, which is always an object."""
    if tool.listing is not None:
        return True
    return tool.output_schema is not None and tool.output_schema.get("type") == "object"


def place_long_schemas(tools: Iterable[Tool]) -> dict[bytes, str]:
    """Returns in which tool each long schema of an argument is shown, if several tools take it: one that only reads,
    else the first.
    """
    takers: defaultdict[bytes, list[Tool]] = defaultdict(list)
    for tool in tools:
        for schema in tool.input_schema["properties"].values():
            if schema.get("type", "object") == "object":
                takers[_encode_schema(schema)].append(tool)
    return {
        schema_json: min(several, key=lambda tool: tool.effect != "read").name
        for schema_json, several in takers.items()
        if len(several) > 1 and len(schema_json) > _LONG_SCHEMA
    }


def _encode_schema(schema: Mapping[str, Any]) -> bytes:
    """Returns a schema as bytes that compare equal where tools differ only in what they say of an argument."""
    shape = {word: value for word, value in schema.items() if word not in ("description", "default")}
    if "anyOf" in shape:
        shape["anyOf"] = [choice for choice in shape["anyOf"] if choice != {"type": "null"}]
    return to_json(shape)


def build_example(tool: Tool) -> dict[str, Any]:
    """Builds the arguments of a call, without the app, for a tool whose arguments are hard to guess: it takes an object
    or a list, or many of them belong together. Empty for others.
    """
    properties, required_names = tool.input_schema["properties"], tool.input_schema.get("required", ())
    if len(tool.examples) < _MANY_FIELDS and not any(map(_holds_objects, properties.values())):
        return {}
    example = {}
    for name, schema in properties.items():
        if name in tool.examples:
            example[name] = tool.examples[name]
        elif name in required_names and name != tool.app_parameter:
            choices = schema.get("examples") or schema.get("enum") or [None]
            example[name] = choices[0]
    return example


def _holds_objects(schema: Mapping[str, Any]) -> bool:
    """Returns whether a value may be an object, a list, or anything."""
    choices = schema.get("anyOf", (schema,))
    return any(
        choice.get("type") in ("object", "array") or not choice.keys() & {"type", "enum", "const"} for choice in choices
    )


def _render_output_schema(tool: Tool) -> dict[str, Any]:
    """Renders the schema of a tool's results as they are here: a list says where it stands, and no member of what is
    read is sure to be there, because one may be read on by itself.
    """
    schema = lean_output(tool.output_schema)
    listing = tool.listing
    if listing is not None and listing.is_bare:
        lists = [choice for choice in (schema, *schema.get("anyOf", ())) if choice.get("type") == "array"]
        items = lists[0]["items"] if lists else schema
        schema = {"type": "object", "properties": {listing.entries: {"type": "array", "items": items}}}
    if listing is not None:
        names = {"total": "integer"} | ({"action_id": "string"} if listing.sample else {"more_than": "integer"})
        further = {name: {"type": kind} for name, kind in names.items()}
        next_name = listing.name_next(tool.input_schema["properties"])
        if next_name is not None:
            further[next_name] = {}
        schema["properties"] = {**further, **schema["properties"]}
    if tool.brief is not None:
        schema["properties"] = tool.brief.describe(schema["properties"])
    if tool.effect == "read":
        schema.pop("required", None)
    return schema


def _render_annotations(tool: Tool) -> dict[str, bool]:
    if tool.effect == "read":
        return {"readOnlyHint": True, "openWorldHint": tool.taints}
    return {
        "readOnlyHint": False,
        "destructiveHint": tool.overwrites,
        "idempotentHint": tool.rest is not None and tool.rest.method in ("PUT", "DELETE"),
        "openWorldHint": tool.effect == "external" or tool.taints,
    }


def _remove_property(schema: dict[str, Any], name: str) -> dict[str, Any]:
    properties = {key: inner for key, inner in schema["properties"].items() if key != name}
    required_names = [key for key in schema.get("required", ()) if key != name]
    other_words = {word: value for word, value in schema.items() if word not in ("properties", "required")}
    return {**other_words, "properties": properties, **({"required": required_names} if required_names else {})}


def _is_in_view(tool: Tool, client: McpClient) -> bool:
    view = client.view
    if view.read_only and tool.effect != "read":
        return False
    return view.toolsets is None or tool.toolset.name in view.toolsets


def _offer_key(caller: Caller) -> Hashable:
    """Returns what the list of a caller depends on; `Access.admits` uses nothing else."""
    by_key = caller.key_id is not None if isinstance(caller, Account) else None
    scopes = caller.scopes if isinstance(caller, ScopedKey) else None
    return type(caller), by_key, scopes, caller.limits


def _tenant(client: McpClient) -> str | None:
    """Returns the tenant that an offer belongs to; None if it is the same for every tenant."""
    caller = client.caller
    if caller.limits is None and client.view.toolsets is None and not isinstance(caller, ScopedKey):
        return None
    return caller.organisation_id if isinstance(caller, Account | ScopedKey) else client.app_id or ""
