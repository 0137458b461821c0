"""Remedies: what to do about the protocol's own errors, in the shape that every error of ours has."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

_REMEDIES: Mapping[int, tuple[str, str]] = {
    types.PARSE_ERROR: ("PROTOCOL_PARSE_ERROR", "Send one JSON-RPC 2.0 message as JSON in UTF-8."),
    types.INVALID_REQUEST: (
        "PROTOCOL_INVALID_REQUEST",
        "Send one JSON-RPC 2.0 request object.",
    ),
    types.METHOD_NOT_FOUND: ("PROTOCOL_METHOD_NOT_FOUND", "Use a method of the protocol version that you speak."),
    types.INVALID_PARAMS: ("PROTOCOL_INVALID_PARAMS", "Send the parameters that the method's schema asks for."),
    types.INTERNAL_ERROR: ("INTERNAL_ERROR", "Try again; if it stays, report the request id to the operator."),
    types.HEADER_MISMATCH: (
        "PROTOCOL_HEADER_MISMATCH",
        "Send MCP-Protocol-Version, Mcp-Method and Mcp-Name once each, with what the body says.",
    ),
    types.UNSUPPORTED_PROTOCOL_VERSION: (
        "PROTOCOL_VERSION_UNSUPPORTED",
        "Use a version of data.supported, or begin with initialize for the earlier ones.",
    ),
    types.MISSING_REQUIRED_CLIENT_CAPABILITY: (
        "PROTOCOL_CAPABILITY_MISSING",
        "Declare the capability that data names, or do without what needs it.",
    ),
}


def add_remedy(code: int, data: Any) -> Any:
    """The data of a protocol error, with our code and a remedy where it has none."""
    known = _REMEDIES.get(code)
    if known is None or (isinstance(data, Mapping) and "remediation" in data):
        return data
    held = dict(data) if isinstance(data, Mapping) else {}
    return {"code": known[0], "remediation": known[1], **held}


def with_remedy(error: MCPError) -> MCPError:
    return MCPError(error.error.code, error.error.message, add_remedy(error.error.code, error.error.data))
