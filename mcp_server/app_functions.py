"""The functions that an app offers as tools: at the app's own address, each is a tool of its own.

Calling one is calling `functions_read` or `functions_call`, with all their rules, so a client is shown only those that
it could call in this way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from baobab.mcp_server.catalogue import Offer, Page
from baobab.mcp_server.mcp_client import McpClient
from baobab.tools.core.auth.callers import Account, AppKey, EndUser
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.registry import Registry
from baobab.tools.functions.live import FunctionCache

PREFIX = "function_"
_READ, _CALL = "functions_read", "functions_call"
_LONGEST_NAME = 64
"""What clients take; a function with a longer name is called by `functions_call` only."""
_ROOM_OF_SCHEMAS = 12_000
"""In characters: what the schemas of arguments may take in the list."""
_ANYTHING: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class FunctionAsTool:
    """A function of the client's app. tool: the one that calls it."""

    row: Any
    tool: Tool
    input_schema: Mapping[str, Any]


class AppFunctions:
    """Finds the functions that a client may call as tools."""

    def __init__(self, registry: Registry) -> None:
        self._services = registry.services

    async def find(self, client: McpClient, offer: Offer, name: str) -> Tool | None:
        """Returns the tool that calls the function which is named as a tool; None if the client has no such one."""
        if not name.startswith(PREFIX) or not _may_see(client, offer):
            return None
        row = (await self._list_rows(client, offer)).get(name.removeprefix(PREFIX))
        return None if row is None else _choose_tool(row, offer)

    async def add_to(self, page: Page, client: McpClient, offer: Offer) -> Page:
        """Returns a page of the list of tools; the last one with the functions after it."""
        if page.next_cursor is not None or not _may_see(client, offer):
            return page
        descriptions = [each async for each in self._describe(client, offer)]
        if not descriptions:
            return page
        comma = b"," if page.tools != b"[]" else b""
        return Page(page.tools[:-1] + comma + to_json(descriptions)[1:], None)

    async def _list_rows(self, client: McpClient, offer: Offer) -> dict[str, Any]:
        assert client.app_id is not None
        try:
            live = await self._services.of(FunctionCache).get(client.app_id)
        except BaobabError:
            # An app that is gone or cannot be read now is told by the calls.
            return {}
        is_outsider = isinstance(client.caller, EndUser)
        return {
            name: row
            for name, row in sorted(live.rows.items())
            if row.agent_tool
            and (not is_outsider or row.agent_tool_exposed_to == "end_user")
            and len(PREFIX + name) <= _LONGEST_NAME
            and _choose_tool(row, offer) is not None
        }

    async def _describe(self, client: McpClient, offer: Offer) -> Any:
        room = _ROOM_OF_SCHEMAS
        for name, row in (await self._list_rows(client, offer)).items():
            version = await self._services.of(FunctionCache).get_version(row.app_id, row.id, row.version)
            schema = _fit_schema(None if version is None else version.input_schema)
            text = row.agent_tool_description or row.description or f"The function {name} of the app."
            length = len(to_json(schema))
            if length > room:
                schema, text = _ANYTHING, f"{text} functions_tools has the schema of its arguments."
            else:
                room -= length
            reads = row.agent_tool_mode == "read_only"
            annotations = {"readOnlyHint": reads, "openWorldHint": True}
            yield {
                "name": PREFIX + name,
                "title": name,
                "description": text,
                "inputSchema": schema,
                "annotations": annotations if reads else {**annotations, "destructiveHint": True},
            }


def _may_see(client: McpClient, offer: Offer) -> bool:
    """Returns whether a client is one of those who run the app of its address, or one of the app's users."""
    if client.app_id is None or not offer.tools.keys() & {_READ, _CALL}:
        return False
    if isinstance(client.caller, AppKey | EndUser):
        return client.caller.app_id == client.app_id
    return isinstance(client.caller, Account) and client.role not in (None, APPROVER)


def _choose_tool(row: Any, offer: Offer) -> Tool | None:
    """Returns the tool that calls a function, as far as the client has it."""
    reading = offer.tools.get(_READ) if row.agent_tool_mode == "read_only" else None
    return reading or offer.tools.get(_CALL)


def _fit_schema(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns a schema as the protocol takes it: that of an object."""
    if schema is None or schema.get("type", "object") != "object":
        return _ANYTHING
    return {**schema, "type": "object"}
