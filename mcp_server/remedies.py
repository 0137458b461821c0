"""Remedies for the protocol's own errors, in the format of our errors."""

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
    types.METHOD_NOT_FOUND: ("PROTOCOL_METHOD_NOT_FOUND", "Use a method of your protocol version."),
    types.INVALID_PARAMS: ("PROTOCOL_INVALID_PARAMS", "Send the parameters of the method's schema."),
    types.INTERNAL_ERROR: ("INTERNAL_ERROR", "Try again. If it happens again, report the request id to the operator."),
    types.HEADER_MISMATCH: (
        "PROTOCOL_HEADER_MISMATCH",
        "Send MCP-Protocol-Version, Mcp-Method and Mcp-Name once each, with the same values as the body.",
    ),
    types.UNSUPPORTED_PROTOCOL_VERSION: (
        "PROTOCOL_VERSION_UNSUPPORTED",
        "Use a version from data.supported, or begin with initialize for an earlier version.",
    ),
    types.MISSING_REQUIRED_CLIENT_CAPABILITY: (
        "PROTOCOL_CAPABILITY_MISSING",
        "Declare the capability that data names, or avoid what needs it.",
    ),
}


def add_remedy(code: int, data: Any) -> Any:
    """Returns the data of a protocol error, with our code and remedy if it has none."""
    remedy = _REMEDIES.get(code)
    if remedy is None or (isinstance(data, Mapping) and "remediation" in data):
        return data
    fields = dict(data) if isinstance(data, Mapping) else {}
    return {"code": remedy[0], "remediation": remedy[1], **fields}


def with_remedy(error: MCPError) -> MCPError:
    return MCPError(error.error.code, error.error.message, add_remedy(error.error.code, error.error.data))
