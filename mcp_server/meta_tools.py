"""Two tools that stand for all others: one finds them, one calls them. They keep long lists out of a model's mind."""

from typing import Any

from baobab.mcp_server.errors import OtherApp
from baobab.mcp_server.mcp_client import McpClient
from baobab.tools.core.errors import BadRequest, InvalidType, MissingField, UnknownField

SEARCH, CALL = "search_tools", "call_tool"
_MOST_FOUND = 20

NOTHING_FOUND = (
    "No tool is about this. Say what you want to do in other, plainer words, or with the word for the thing: "
    "these are the families of tools."
)

DESCRIBED: list[dict[str, Any]] = [
    {
        "name": CALL,
        "title": "Call any tool",
        "description": "Call a tool that is not in this list, with the name and arguments that search_tools told.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name.", "maxLength": 128},
                "arguments": {"type": "object", "description": "Its arguments, as its inputSchema says."},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    },
    {
        "name": SEARCH,
        "title": "Search tools",
        "description": "Find more tools by what they do: this list shows only the most used. "
        "Answers names, descriptions and argument schemas; then use call_tool.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What you want to do, in a few words.", "maxLength": 400},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_FOUND, "default": 5},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
]


def parse_call(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments inside a use of `call_tool`."""
    _check_known(arguments, "name", "arguments")
    name, inner = arguments.get("name"), arguments.get("arguments")
    if inner is None:
        inner = {}
    if name is None:
        raise MissingField("`name` is missing.", remediation="Say which tool to call; search_tools finds it.")
    if not isinstance(name, str) or not isinstance(inner, dict):
        raise InvalidType("`name` is a text, `arguments` an object.")
    return name, inner


def parse_search(arguments: dict[str, Any]) -> tuple[str, int]:
    """The query and the limit of a use of `search_tools`."""
    _check_known(arguments, "query", "limit")
    query, limit = arguments.get("query"), arguments.get("limit")
    if limit is None:
        limit = 5
    if query is None:
        raise MissingField("`query` is missing.")
    if not isinstance(query, str) or type(limit) is not int:
        raise InvalidType("`query` is a text, `limit` a whole number.")
    if len(query) > 400 or not 1 <= limit <= _MOST_FOUND:
        raise BadRequest(f"`query` has at most 400 characters, `limit` is 1 to {_MOST_FOUND}.")
    return query, limit


def _check_known(arguments: dict[str, Any], *known: str) -> None:
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise UnknownField(f"`{unknown[0][:60]}` is not known; the arguments are {' and '.join(known)}.")


def bind_app(arguments: dict[str, Any], client: McpClient, parameter: str | None) -> dict[str, Any]:
    """Arguments with the app that the visitor is bound to."""
    if parameter != "app_id" or client.app_id is None:
        return arguments
    given = arguments.get("app_id")
    if given not in (None, client.app_id):
        raise OtherApp
    return {**arguments, "app_id": client.app_id}
