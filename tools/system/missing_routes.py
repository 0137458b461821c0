"""Finds the missing feature that a path belongs to."""

from baobab.tools.system.unbuilt import UNBUILT, Unbuilt
from baobab.tools.system.vendor_routes import VENDOR_ROUTES

_PATTERNS = [(tuple(path[1:].split("/")), unbuilt) for unbuilt in (*UNBUILT, *VENDOR_ROUTES) for path in unbuilt.paths]
# The rest is looked at only if one of these is in the path.
_FIXED = frozenset(pattern[-1] for pattern, _ in _PATTERNS)


def find_unbuilt(path: str) -> Unbuilt | None:
    """Returns the missing feature to which a path belongs."""
    segments = path[1:].split("/")
    if _FIXED.isdisjoint(segments):
        return None
    for pattern, unbuilt in _PATTERNS:
        if len(segments) >= len(pattern) and all(
            part == segment or part.startswith("{") for part, segment in zip(pattern, segments, strict=False)
        ):
            return unbuilt
    return None
