"""Groups of tools: a chat completion has none, so their functions are told it with the group's name in front."""

import hashlib
from collections.abc import Mapping
from typing import Any

_LONGEST = 64
"""Characters of a function's name, as providers take them."""


def flat_name(namespace: object, name: str) -> str:
    """The name of a function in a chat completion; that of one in no group is its own."""
    if not isinstance(namespace, str) or not namespace:
        return name
    whole = f"{namespace}__{name}"
    if len(whole) <= _LONGEST:
        return whole
    # What is cut must not make two of them one.
    digest = hashlib.sha256(whole.encode()).hexdigest()[:10]
    return f"{whole[: _LONGEST - 11]}_{digest}"


def grouped_names(body: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Of a request's tools those in groups: group and name, by the name that a chat completion is told."""
    tools = body.get("tools")
    names: dict[str, tuple[str, str]] = {}
    for group in tools if isinstance(tools, list) else ():
        if not isinstance(group, dict) or group.get("type") != "namespace":
            continue
        for tool in group.get("tools") or ():
            names[flat_name(group.get("name"), str(tool.get("name")))] = (str(group.get("name")), str(tool.get("name")))
    return names
