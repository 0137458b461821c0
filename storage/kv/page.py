"""Pages of a scan. The cursor is a key and not a position, so that inserts and deletes cannot shift it."""

from __future__ import annotations

# Sorts after every character of a key.
_ABOVE_ALL = "\U0010ffff"


def bounds(prefix: str, cursor: str | None) -> tuple[str, str]:
    """Returns the first key that a page may hold, and an upper bound of all its keys."""
    # A key with NUL appended is the next larger string.
    lowest = prefix if cursor is None else max(prefix, cursor + "\0")
    return lowest, prefix + _ABOVE_ALL


def cut(keys: list[str], limit: int) -> tuple[list[str], str | None]:
    """Returns a page and the cursor of the next one. `keys` holds `limit` + 1 keys if there is a next page."""
    if len(keys) <= limit:
        return keys, None
    return keys[:limit], keys[limit - 1]
