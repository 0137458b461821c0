"""Batches: several messages in one body. Only the protocol of 2025-03-26 has them."""

from typing import Any

import mcp_types as types
from pydantic_core import from_json

from baobab.mcp_server.remedies import add_remedy

MOST = 20
"""The most messages of one batch."""
_VERSIONS = (None, b"2025-03-26")
"""Clients of that version send no version header."""


def is_batch(message: Any, version: bytes | None) -> bool:
    return isinstance(message, list) and bool(message) and version in _VERSIONS


def render_invalid_part(why: str) -> dict[str, Any]:
    """Renders the error for a part of a batch that is not a valid message."""
    data = add_remedy(types.INVALID_REQUEST, None)
    return {"jsonrpc": "2.0", "id": None, "error": {"code": types.INVALID_REQUEST, "message": why, "data": data}}


class ResponseCapture:
    """A `send` that collects the answer to one message instead of sending it."""

    def __init__(self) -> None:
        self._body = b""

    async def __call__(self, message: Any) -> None:
        self._body += message.get("body", b"")

    @property
    def answer(self) -> Any:
        """The JSON-RPC answer, or the last message of a stream; None for a notification."""
        if not self._body.strip():
            return None
        if self._body.lstrip().startswith(b"{"):
            return from_json(self._body)
        data = [line[6:] for line in self._body.splitlines() if line.startswith(b"data: {")]
        return from_json(data[-1]) if data else None
