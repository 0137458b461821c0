"""Groups of tools. Chat completions do not have groups, so a group's name becomes a prefix of its functions' names."""

import hashlib
from collections.abc import Mapping
from typing import Any

_LONGEST = 64
"""The most characters of a function's name that providers accept."""


def flat_name(namespace: object, name: str) -> str:
    """Returns the name of a function in a chat completion; unchanged if it is in no group."""
    if not isinstance(namespace, str) or not namespace:
        return name
    full_name = f"{namespace}__{name}"
    if len(full_name) <= _LONGEST:
        return full_name
    # The digest keeps names distinct after they are cut.
    digest = hashlib.sha256(full_name.encode()).hexdigest()[:10]
    return f"{full_name[: _LONGEST - 11]}_{digest}"


def grouped_names(body: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Maps the name in the chat completion to group and name, for the tools of a request that are in groups."""
    tools = body.get("tools")
    names: dict[str, tuple[str, str]] = {}
    for group in tools if isinstance(tools, list) else ():
        if not isinstance(group, dict) or group.get("type") != "namespace":
            continue
        for tool in group.get("tools") or ():
            names[flat_name(group.get("name"), str(tool.get("name")))] = (str(group.get("name")), str(tool.get("name")))
    return names
