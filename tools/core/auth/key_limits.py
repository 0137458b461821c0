"""Limits of a key: what it may not call although its account may."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from baobab.tools.core.auth.callers import Caller, Limits
from baobab.tools.core.call import Tool, ToolRunner
from baobab.tools.core.effects import stricter
from baobab.tools.core.errors import BadRequest, KeyLimited
from baobab.tools.core.types import Text

ToolsetNames = Annotated[list[Annotated[str, Text(60, min_length=1)]], Field(min_length=1, max_length=100)]
"""Names of toolsets."""
# A key with limits sees only its own proposals of these.
_OF_ONE_KEY = frozenset({"approvals"})


class UnknownToolset(BadRequest):
    summary = "There is no such toolset."
    remediation = "Use names of details.known."


def find_exceeded_limit(caller: Caller, tool: Tool) -> str | None:  # noqa: PLR0911 - one for each limit
    """Returns a sentence that names the tool and the limit that excludes it; None if the key's limits allow it."""
    limits = caller.limits
    if limits is None:
        return None
    if limits.tools is not None and tool.name not in limits.tools:
        return f"The app does not give {tool.name} to its users over MCP."
    if limits.toolsets is not None and tool.toolset.name not in limits.toolsets:
        toolset_names = ", ".join(sorted(limits.toolsets))
        return f"This key cannot call {tool.name}: its toolsets are {toolset_names}."
    if limits.read_only and tool.effect != "read":
        return f"This key cannot call {tool.name}: the key only reads."
    if limits.app_id is not None and tool.app_parameter != "app_id" and tool.toolset.name not in _OF_ONE_KEY:
        return f"This key cannot call {tool.name}: the key opens one app only."
    if tool.grants:
        # The credential that it hands out would not have this key's limits.
        limit_name = "a budget" if limits.has_budget else "limits"
        return f"A key with {limit_name} cannot call {tool.name}, which hands out credentials or rights."
    return None


def check_arguments(caller: Caller, tool: Tool, values: Mapping[str, Any], sent_arguments: Mapping[str, Any]) -> None:
    """Raises KeyLimited if a caller with limits gives an argument that widens somebody's rights.

    values: the arguments as they were validated; given: as they came, so without defaults.
    """
    if caller.limits is None:
        return
    for name, widens in tool.widens.items():
        if name in sent_arguments and widens(values[name]):
            raise KeyLimited(
                f"A key with limits cannot call {tool.name} with this `{name}`: it widens what somebody may do.",
                remediation=f"Leave `{name}` out, or ask somebody who is signed in or has a key without limits.",
                details={"tool": tool.name, "argument": name},
            )


def check_spending(caller: Caller, tool: Tool, values: Mapping[str, Any]) -> None:
    """Raises KeyLimited if a caller that only reads gives an argument with which the tool spends money."""
    if caller.limits is None or not caller.limits.read_only:
        return
    for name in sorted(tool.spends):
        if values[name]:
            raise KeyLimited(
                f"A read-only key cannot call {tool.name} with `{name}`: it spends money on a model.",
                remediation=f"Leave `{name}` out, or use a key that may call models.",
                details={"tool": tool.name, "argument": name},
            )


def check_limits(caller: Caller, tool: Tool, app_id: str | None) -> None:
    """Raises KeyLimited if a call exceeds a limit. app_id: the app of the call, if it has one."""
    reason = find_exceeded_limit(caller, tool)
    limits = caller.limits
    if reason is None and limits is not None and limits.app_id not in (None, app_id) and app_id is not None:
        reason = f"This key cannot call {tool.name} here: the key opens one app only, and not this one."
    if reason is not None:
        raise KeyLimited(reason, details={"tool": tool.name})


def narrow_limits(requested_limits: Limits, maker: Limits | None) -> Limits:
    """Returns the limits of a new key: at least those of the key that creates it."""
    if maker is None:
        return requested_limits
    toolsets = requested_limits.toolsets
    if maker.toolsets is not None:
        toolsets = maker.toolsets if toolsets is None else toolsets & maker.toolsets
    return Limits(
        toolsets,
        requested_limits.read_only or maker.read_only,
        stricter(requested_limits.approval, maker.approval),
        app_id=maker.app_id or requested_limits.app_id,
        # The maker's exemptions are not inherited: a person gave them to that key only.
        always_ask=maker.always_ask,
        ends_at=min((end for end in (maker.ends_at, requested_limits.ends_at) if end is not None), default=None),
    )


def list_open_toolsets(registry: ToolRunner, toolsets: Iterable[str] | None, *, asks: bool) -> frozenset[str] | None:
    """Returns the toolsets that a key opens, always with approvals if it asks for them. Raises UnknownToolset."""
    if toolsets is None:
        return None
    names = {toolset.name for toolset in registry.toolsets}
    unknown = sorted(set(toolsets) - names)
    if unknown:
        raise UnknownToolset(f"No toolset is called `{unknown[0]}`.", details={"known": sorted(names)})
    return frozenset({*toolsets, "approvals"} if asks else toolsets)
