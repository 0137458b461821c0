"""Lists the keys of a server by their names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

_AT_ONCE = 1000


async def scan_names(send: Callable[..., Awaitable[Any]], pattern: str) -> AsyncIterator[str]:
    """Yields the names that match; the server may report one more than once. send: sends a command to the server."""
    cursor = b"0"
    while True:
        cursor, names = await send("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_ONCE)
        for name in names:
            yield name.decode()
        if cursor == b"0":
            return
