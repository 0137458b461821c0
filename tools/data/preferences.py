"""The header Prefer, by which PostgREST's clients say how they want to be answered."""

from dataclasses import dataclass
from typing import Literal, cast

from baobab.tools.core.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Preferences:
    counts: bool = False
    minimal: bool = False
    representation: bool = False
    resolution: Literal["merge-duplicates", "ignore-duplicates"] | None = None
    max_affected: int | None = None


def read_preferences(text: str) -> Preferences:
    """Preferences that are not known are passed over, as HTTP says."""
    given = dict(part.strip().partition("=")[::2] for part in text.split(",") if "=" in part)
    if given.get("tx") == "rollback":
        # To pass over this one would keep what its sender wants to try only.
        raise BadRequest(
            "`Prefer: tx=rollback` is not available: the write would be kept.",
            remediation="Leave it out, and take the write back with op:data_undo if need be.",
        )
    resolution = given.get("resolution")
    if resolution not in (None, "merge-duplicates", "ignore-duplicates"):
        raise BadRequest("`Prefer: resolution` is merge-duplicates or ignore-duplicates.")
    most = given.get("max-affected")
    if most is not None and not (most.isascii() and most.isdigit() and len(most) < 7):
        raise BadRequest("`Prefer: max-affected` is a number.")
    return Preferences(
        counts=given.get("count") in ("exact", "planned", "estimated"),
        minimal=given.get("return") in ("minimal", "headers-only"),
        representation=given.get("return") == "representation",
        resolution=cast(Literal["merge-duplicates", "ignore-duplicates"] | None, resolution),
        max_affected=None if most is None else int(most),
    )
