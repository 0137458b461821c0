"""Two tools that stand for all others, one to find tools and one to call them. They keep long lists out of a model's
context.
"""

from typing import Any

from baobab.mcp_server.errors import OtherApp
from baobab.mcp_server.mcp_client import McpClient
from baobab.tools.core.errors import BadRequest, InvalidType, MissingField, UnknownField

SEARCH, CALL = "search_tools", "call_tool"
_MOST_FOUND = 20

NOTHING_FOUND = (
    "No tool does this. Describe what you want to do in other, plainer words, or name the thing that it is about. "
    "These are the toolsets; docs_read with a query searches the guides."
)
ELSEWHERE = "No tool of this connection does this: `elsewhere` says what does. The tools are only similar."
MORE = "A schema that is not shown: search_tools with the tool's name and detail=true."

DESCRIBED: list[dict[str, Any]] = [
    {
        "name": CALL,
        "title": "Call any tool",
        "description": "Call a tool that is not in this list, with a name and arguments as search_tools gives them.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name.", "maxLength": 128},
                "arguments": {"type": "object", "description": "The tool's arguments, which match its inputSchema."},
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
        "Returns names, arguments and what the tools do, with the schema of the first; call them with call_tool. "
        "If no tool does what you want, it says so, and where else it is.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What you want to do, in a few words.", "maxLength": 400},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_FOUND, "default": 5},
                "detail": {
                    "type": "boolean",
                    "default": False,
                    "description": "Show whole descriptions and schemas. The query may be a tool's name.",
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
]


def parse_call(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the name and the arguments in the arguments of `call_tool`."""
    _check_known(arguments, "name", "arguments")
    name, inner = arguments.get("name"), arguments.get("arguments")
    if inner is None:
        inner = {}
    if name is None:
        raise MissingField("`name` is missing.", remediation="Say which tool to call; search_tools finds it.")
    if not isinstance(name, str) or not isinstance(inner, dict):
        raise InvalidType("`name` must be a string and `arguments` an object.")
    return name, inner


def parse_search(arguments: dict[str, Any]) -> tuple[str, int, bool]:
    """Returns the query, the limit and whether details are wanted, in the arguments of `search_tools`."""
    _check_known(arguments, "query", "limit", "detail")
    query, limit, detail = arguments.get("query"), arguments.get("limit"), arguments.get("detail")
    if limit is None:
        limit = 5
    if query is None:
        raise MissingField("`query` is missing.")
    if not isinstance(query, str) or type(limit) is not int or not isinstance(detail, bool | None):
        raise InvalidType("`query` must be a string, `limit` an integer and `detail` true or false.")
    if len(query) > 400 or not 1 <= limit <= _MOST_FOUND:
        raise BadRequest(f"`query` must have at most 400 characters, and `limit` must be 1 to {_MOST_FOUND}.")
    return query, limit, detail is True


def _check_known(arguments: dict[str, Any], *names: str) -> None:
    unknown = [name for name in arguments if name not in names]
    if unknown:
        raise UnknownField(f"`{unknown[0][:60]}` is not an argument; the arguments are {' and '.join(names)}.")


def bind_app(arguments: dict[str, Any], client: McpClient, parameter: str | None) -> dict[str, Any]:
    """Returns the arguments with the app that the client is bound to. Raises OtherApp."""
    if parameter != "app_id" or client.app_id is None:
        return arguments
    app_id = arguments.get("app_id")
    if app_id not in (None, client.app_id):
        raise OtherApp
    return {**arguments, "app_id": client.app_id}
