"""Reads the header Prefer, with which clients of PostgREST say how they want to be answered."""

from dataclasses import dataclass
from typing import Literal, cast

from baobab.tools.core import BadRequest


@dataclass(frozen=True, slots=True)
class Preferences:
    counts: bool = False
    minimal: bool = False
    representation: bool = False
    resolution: Literal["merge-duplicates", "ignore-duplicates"] | None = None
    max_affected: int | None = None


_NONE = Preferences()


def read_preferences(text: str) -> Preferences:
    """Reads the header. Unknown preferences are ignored, as HTTP requires."""
    if not text:
        return _NONE
    preferences = dict(part.strip().partition("=")[::2] for part in text.split(",") if "=" in part)
    if preferences.get("tx") == "rollback":
        # Ignoring this one would store a write that its sender only wants to try.
        raise BadRequest(
            "`Prefer: tx=rollback` is not available: the write would be kept.",
            remediation="Leave it out. You can undo the write with op:data_undo.",
        )
    resolution = preferences.get("resolution")
    if resolution not in (None, "merge-duplicates", "ignore-duplicates"):
        raise BadRequest("`Prefer: resolution` must be merge-duplicates or ignore-duplicates.")
    max_affected = preferences.get("max-affected")
    if max_affected is not None and not (max_affected.isascii() and max_affected.isdigit() and len(max_affected) < 7):
        raise BadRequest("`Prefer: max-affected` must be a number.")
    return Preferences(
        counts=preferences.get("count") in ("exact", "planned", "estimated"),
        minimal=preferences.get("return") in ("minimal", "headers-only"),
        representation=preferences.get("return") == "representation",
        resolution=cast('Literal["merge-duplicates", "ignore-duplicates"] | None', resolution),
        max_affected=None if max_affected is None else int(max_affected),
    )
