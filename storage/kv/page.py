"""Pages of a scan. The cursor is a key, not a position: inserts and deletes elsewhere cannot shift it."""

from __future__ import annotations

# Sorts after every character of a key.
_ABOVE_ALL = "\U0010ffff"


def bounds(prefix: str, cursor: str | None) -> tuple[str, str]:
    """The first key a page may hold, and one that is above all of them."""
    # A key with NUL appended is the next larger string.
    lowest = prefix if cursor is None else max(prefix, cursor + "\0")
    return lowest, prefix + _ABOVE_ALL


def cut(keys: list[str], limit: int) -> tuple[list[str], str | None]:
    """`keys` holds one more than `limit` where there is a next page."""
    if len(keys) <= limit:
        return keys, None
    return keys[:limit], keys[limit - 1]
