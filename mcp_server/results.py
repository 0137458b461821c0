"""Results: what a tool answered, as the protocol wants it. What is structured is sent once, not again as text."""

from typing import Any

import mcp_types as types
from pydantic_core import from_json, to_json

from baobab.mcp_server.catalogue import is_object
from baobab.mcp_server.visitor import Visitor
from baobab.tools.errors import BaobabError
from baobab.tools.tool import Tool

NO_CONTENT = "Done."
STRUCTURED = "The result is in structuredContent."
"""A few words for hosts that show their model nothing of what is structured; `?results=text` gives them the whole."""

# Earlier protocols know no structured content.
_FIRST_STRUCTURED = "2025-06-18"


def as_text(tool: Tool, result: Any, visitor: Visitor, protocol_version: str) -> str | None:
    """The text of a result; None where it goes as structured content."""
    if result is None:
        return NO_CONTENT
    if isinstance(result, str):
        return result
    if visitor.view.text or protocol_version < _FIRST_STRUCTURED or not is_object(tool):
        return tool.encode(result).decode()
    return None


def succeeded(tool: Tool, result: Any, visitor: Visitor, protocol_version: str) -> types.CallToolResult:
    text = as_text(tool, result, visitor, protocol_version)
    if text is not None:
        return types.CallToolResult(content=[types.TextContent(text=text)])
    return types.CallToolResult(
        content=[types.TextContent(text=STRUCTURED)], structured_content=from_json(tool.encode(result))
    )


def found(answer: dict[str, Any], protocol_version: str) -> types.CallToolResult:
    """What a search answers."""
    if protocol_version < _FIRST_STRUCTURED:
        return types.CallToolResult(content=[types.TextContent(text=to_json(answer).decode())])
    return types.CallToolResult(content=[types.TextContent(text=STRUCTURED)], structured_content=answer)


def told(error: BaobabError) -> dict[str, Any]:
    """An error as data: for structured content, and for the protocol's own errors."""
    known = {"code": error.code, "message": error.message, "remediation": error.remedy}
    return known | ({"details": error.details} if error.details else {})


def failed(error: BaobabError) -> types.CallToolResult:
    """A refusal. It is said twice, for models of every host must be able to follow it: in words, and as data."""
    details = f" {to_json(error.details).decode()}" if error.details else ""
    return types.CallToolResult(
        content=[types.TextContent(text=f"{error.code}: {error.message} {error.remedy}{details}")],
        structured_content={"error": told(error)},
        is_error=True,
    )
