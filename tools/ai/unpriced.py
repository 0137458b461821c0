"""Refuses fields and tools that cost extra at the provider and that no price here covers."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused
from baobab.tools.ai.answer_headers import set_dropped_header
from baobab.tools.core import Call

# Fields with a surcharge that the catalogue's prices do not include: another speed or region, searches by the provider,
# containers that it runs.
_UNPRICED = frozenset(
    (
        "service_tier",
        "speed",
        "inference_geo",
        "web_search_options",
        "search_parameters",
        "enable_search",
        "connectors",
        "plugins",
        "mcp_servers",
        "container",
        "moderation",
    )
)
# Fields that choose another model than the one that is charged, charge another account, or undo the limits for which
# credits were reserved.
_ELSEWHERE = frozenset(
    (
        "models",
        "route",
        "provider",
        "preset",
        "generationConfig",
        "generation_config",
    )
)
_USUAL: dict[str, tuple[Any, ...]] = {
    "service_tier": ("auto", "default", "flex", "standard_only"),
    "speed": ("standard",),
    "inference_geo": ("global",),
    "enable_search": (False,),
    "n": (1,),
}
_SEARCH = re.compile(r"web_search(?:_preview)?(?:_\d{4}_?\d\d_?\d\d)?")
_WITH_TOOLS = frozenset(("tool_choice", "parallel_tool_calls"))
"""The fields that providers refuse if there are no tools."""
# Tools of all other types are run by the provider, and charged separately.
_OWN_TOOLS = ("function", "custom")


def runs_itself(kind: Any) -> bool:
    """Returns whether the caller runs tools of this type."""
    return kind in _OWN_TOOLS


def without_unpriced(
    call: Call,
    further: Mapping[str, Any],
    *,
    elsewhere: frozenset[str] = frozenset(),
    is_own_kind: Callable[[Any], bool] = runs_itself,
    known_kinds: str = "`function` and `custom`",
) -> dict[str, Any]:
    """Returns the fields without the search tools that the installation's setting drops.

    Raises RequestRefused for everything else without a price. elsewhere: more fields, of the wire format, that change
    who is charged, or for what. is_own_kind: says whether the caller runs tools of a type. known_kinds: those types,
    as text.
    """
    for field in sorted((_UNPRICED | _ELSEWHERE | elsewhere) & further.keys()):
        value = further[field]
        if value is None or value in _USUAL.get(field, ()):
            continue
        reason = (
            "costs extra at the provider, and has no price here"
            if field in _UNPRICED
            else "changes what is charged for"
        )
        raise RequestRefused(f"`{field}` {reason}.", remediation="Leave it out.", details={"param": field})
    tools = further.get("tools")
    if tools is None:
        return dict(further)
    setting = call.services.options.ai_web_search
    kept_tools, dropped_tools = [], []
    for at, tool in enumerate(tools if isinstance(tools, list) else [tools]):
        kind = tool.get("type") if isinstance(tool, dict) else None
        searches = isinstance(kind, str) and _SEARCH.fullmatch(kind) is not None
        if isinstance(tool, dict) and (_is_run_by_the_caller(tool, is_own_kind) or (searches and setting == "allow")):
            kept_tools.append(tool)
        elif isinstance(tool, dict) and searches and setting == "drop" and not _is_chosen(tool, further):
            dropped_tools.append(tool)
        else:
            raise _tool_error(at, kind, known_kinds)
    if not dropped_tools:
        return dict(further)
    set_dropped_header(call, *(f"tools.{tool['type']}" for tool in dropped_tools))
    other_fields = {name: value for name, value in further.items() if name != "tools"}
    return (
        {**other_fields, "tools": kept_tools}
        if kept_tools
        else {name: other_fields[name] for name in other_fields if name not in _WITH_TOOLS}
    )


def _is_run_by_the_caller(tool: Mapping[str, Any], is_own_kind: Callable[[Any], bool]) -> bool:
    kind, inner = tool.get("type"), tool.get("tools")
    if kind != "namespace":
        return is_own_kind(kind)
    # A group of tools under one name.
    return isinstance(inner, list) and all(
        isinstance(inner_tool, dict) and runs_itself(inner_tool.get("type")) for inner_tool in inner
    )


def _is_chosen(tool: Mapping[str, Any], further: Mapping[str, Any]) -> bool:
    """Returns whether the model must use this tool, so that it cannot be left out."""
    choice = further.get("tool_choice")
    if not isinstance(choice, dict):
        return False
    return choice.get("type") == tool["type"] or (tool.get("name") is not None and choice.get("name") == tool["name"])


def _tool_error(at: int, kind: Any, known_kinds: str) -> RequestRefused:
    type_text = f"is of the type `{kind[:60]}`" if isinstance(kind, str) else "has no type"
    return RequestRefused(
        f"`tools[{at}]` {type_text}, and only the types {known_kinds} are passed on: others have no price here.",
        remediation="Leave it out of `tools`.",
        details={"param": f"tools[{at}]"},
    )
