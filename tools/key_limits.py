"""Limits of a key: what it may not call although its account may."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.callers import Caller, Limits
from baobab.tools.effects import stricter
from baobab.tools.errors import KeyLimited
from baobab.tools.tool import Tool


def passed(caller: Caller, tool: Tool) -> str | None:
    """Which limit a call would pass, in words; None where it is within all of them."""
    limits = caller.limits
    if limits is None:
        return None
    if limits.toolsets is not None and tool.toolset.name not in limits.toolsets:
        return f"This key opens {', '.join(sorted(limits.toolsets))}, not {tool.toolset.name}."
    if limits.read_only and tool.effect != "read":
        return "This key only reads."
    if tool.grants:
        # What it hands out would know nothing of this key's limits.
        what = "a budget" if limits.budgeted else "limits"
        return f"A key with {what} cannot hand out credentials or rights."
    return None


def hold_arguments(caller: Caller, tool: Tool, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise KeyLimited where a caller with limits gives an argument that widens what somebody may.

    values: the arguments as they were validated; given: as they came, so without defaults.
    """
    if caller.limits is None:
        return
    for name, widens in tool.widens.items():
        if name in given and widens(values[name]):
            raise KeyLimited(
                f"A key with limits cannot give this `{name}`: it widens what somebody may do.",
                remediation=f"Leave `{name}` out, or have somebody do it who is signed in or has a key without limits.",
                details={"argument": name},
            )


def hold(caller: Caller, tool: Tool) -> None:
    """Raise KeyLimited where a call passes a limit."""
    reason = passed(caller, tool)
    if reason is not None:
        raise KeyLimited(reason)


def narrowed(asked: Limits, maker: Limits | None) -> Limits:
    """What a new key is held to: never less than the key that makes it."""
    if maker is None:
        return asked
    toolsets = asked.toolsets
    if maker.toolsets is not None:
        toolsets = maker.toolsets if toolsets is None else toolsets & maker.toolsets
    return Limits(toolsets, asked.read_only or maker.read_only, stricter(asked.approval, maker.approval))
