"""What is to be said against a graph."""

import json
from dataclasses import dataclass

Path = tuple[str | int, ...]

MAX_ISSUES = 100


@dataclass(frozen=True, slots=True)
class Issue:
    """`path` leads from the graph's root to the part at fault: ("edges", 3, "to")."""

    path: Path
    message: str


def quote_name(text: str) -> str:
    """A name for a message, as it would stand in the graph, cut to what a reader needs."""
    return json.dumps(text if len(text) <= 64 else f"{text[:63]}…", ensure_ascii=False)
