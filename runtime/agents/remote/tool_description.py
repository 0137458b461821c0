"""Tools as their servers describe them. The descriptions are untrusted text, so they are bounded, and compared by
digest.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self

from baobab.runtime.agents.spec.bounds import find_violations
from baobab.tools.core.guard.escaping import is_seen

MOST_TOOLS = 128
MAX_NAME = 128
MAX_DESCRIPTION = 4000
_MAX_SCHEMA = 16_000
# Characters that a model reads and a screen hides or moves: controls, zero widths, directions, tags.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e01ef]"
)


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool of a server. read_only: whether the server says that it changes nothing."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    read_only: bool

    @classmethod
    def from_row(cls, name: str, row: Mapping[str, Any]) -> Self:
        return cls(name, row["description"], row["input_schema"], row["read_only"])

    @property
    def row(self) -> dict[str, Any]:
        return {
            "description": self.description,
            "input_schema": dict(self.input_schema),
            "read_only": self.read_only,
        }

    @property
    def digest(self) -> str:
        """The digest of everything that a model or an owner is shown of the tool."""
        return sha256(json.dumps([self.name, self.row], sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The usable tools of a server. left_out: how many of its tools cannot be used."""

    tools: Mapping[str, ToolDescription] = field(default_factory=dict)
    left_out: int = 0


def build_listing(tools_offered: Iterable[tuple[str, str | None, Mapping[str, Any], bool]]) -> ToolListing:
    """Builds the listing of a server from the name, description, input schema and read-only hint of each tool."""
    tools: dict[str, ToolDescription] = {}
    left_out = 0
    for each in tools_offered:
        name, description, schema, read_only = each
        tool = describe_tool(name, description, schema, read_only=read_only)
        if tool is None or tool.name in tools or len(tools) >= MOST_TOOLS:
            left_out += 1
        else:
            tools[tool.name] = tool
    return ToolListing(tools, left_out)


def describe_tool(
    name: str, description: str | None, schema: Mapping[str, Any], *, read_only: bool
) -> ToolDescription | None:
    """Describes a tool; returns None if its name is unusable, or its schema is too large, has hidden text or cannot be
    stored.
    """
    if not 0 < len(name) <= MAX_NAME or not all(map(is_seen, name)):
        return None
    visible_part = {
        "description": _INVISIBLE.sub("\ufffd", (description or "")[:MAX_DESCRIPTION]),
        "schema": dict(schema),
    }
    if any(find_violations(visible_part)) or len(json.dumps(visible_part["schema"])) > _MAX_SCHEMA:
        return None
    if _INVISIBLE.search(json.dumps(visible_part["schema"], ensure_ascii=False)):
        return None
    return ToolDescription(name, str(visible_part["description"]), dict(schema), read_only)
