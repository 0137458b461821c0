"""What no price here covers: it is refused instead of being passed on unpaid."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused
from baobab.tools.ai.answer_headers import set_dropped_header
from baobab.tools.core.call import Call

# Surcharges that the catalogue's prices do not hold: service of another speed or place, searches that the provider
# makes, machines that it keeps.
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
# What has another model answer than the one that is charged, is charged elsewhere, or undoes the limits that were
# reckoned with.
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
"""What is refused where there are no tools."""
# All others are run by the provider, and charged by rules of their own.
_OWN_TOOLS = ("function", "custom")


def runs_itself(kind: Any) -> bool:
    """Whether tools of this type are run by whoever asked."""
    return kind in _OWN_TOOLS


def without_unpriced(
    call: Call,
    further: Mapping[str, Any],
    *,
    elsewhere: frozenset[str] = frozenset(),
    theirs: Callable[[Any], bool] = runs_itself,
    known: str = "`function` and `custom`",
) -> dict[str, Any]:
    """The fields, without the searches that the installation's setting drops; RequestRefused for all else unpriced.

    elsewhere: fields of the wire's own that change who is charged, or for what. theirs: whether a tool of a type is run
    by whoever asked; known: those types, in words.
    """
    for field in sorted((_UNPRICED | _ELSEWHERE | elsewhere) & further.keys()):
        value = further[field]
        if value is None or value in _USUAL.get(field, ()):
            continue
        said = "costs extra by rules that no price here says" if field in _UNPRICED else "changes what is charged for"
        raise RequestRefused(f"`{field}` {said}.", remediation="Leave it out.", details={"param": field})
    tools = further.get("tools")
    if tools is None:
        return dict(further)
    setting = call.services.options.ai_web_search
    kept, dropped = [], []
    for at, tool in enumerate(tools if isinstance(tools, list) else [tools]):
        kind = tool.get("type") if isinstance(tool, dict) else None
        searches = isinstance(kind, str) and _SEARCH.fullmatch(kind) is not None
        if isinstance(tool, dict) and (_is_run_by_the_caller(tool, theirs) or (searches and setting == "allow")):
            kept.append(tool)
        elif isinstance(tool, dict) and searches and setting == "drop" and not _is_chosen(tool, further):
            dropped.append(tool)
        else:
            raise _tool_error(at, kind, known)
    if not dropped:
        return dict(further)
    set_dropped_header(call, *(f"tools.{tool['type']}" for tool in dropped))
    rest = {name: value for name, value in further.items() if name != "tools"}
    return {**rest, "tools": kept} if kept else {name: rest[name] for name in rest if name not in _WITH_TOOLS}


def _is_run_by_the_caller(tool: Mapping[str, Any], theirs: Callable[[Any], bool]) -> bool:
    kind, inner = tool.get("type"), tool.get("tools")
    if kind != "namespace":
        return theirs(kind)
    # A group of tools, under one name.
    return isinstance(inner, list) and all(isinstance(one, dict) and runs_itself(one.get("type")) for one in inner)


def _is_chosen(tool: Mapping[str, Any], further: Mapping[str, Any]) -> bool:
    """Whether the model must use it: without it, it could not answer as it was asked to."""
    choice = further.get("tool_choice")
    if not isinstance(choice, dict):
        return False
    return choice.get("type") == tool["type"] or (tool.get("name") is not None and choice.get("name") == tool["name"])


def _tool_error(at: int, kind: Any, known: str) -> RequestRefused:
    named = f"is of the type `{kind[:60]}`" if isinstance(kind, str) else "has no type"
    return RequestRefused(
        f"`tools[{at}]` {named}, and only the types {known} are passed on: others have no price here.",
        remediation="Leave it out of `tools`.",
        details={"param": f"tools[{at}]"},
    )
