"""Validation problems of a graph."""

import json
from dataclasses import dataclass

Path = tuple[str | int, ...]

MAX_ISSUES = 100


@dataclass(frozen=True, slots=True)
class Issue:
    """One validation problem: where it is in the graph, such as ("edges", 3, "to"), and what is wrong."""

    path: Path
    message: str


def quote_name(text: str) -> str:
    """Quotes a name for a message as it would stand in the graph, cut to 64 characters."""
    return json.dumps(text if len(text) <= 64 else f"{text[:63]}…", ensure_ascii=False)
