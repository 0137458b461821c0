"""What no price here covers: it is refused instead of being passed on unpaid."""

from collections.abc import Callable, Mapping
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused

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
# All others are run by the provider, and charged by rules of their own.
_OWN_TOOLS = ("function", "custom")


def runs_itself(kind: Any) -> bool:
    """Whether tools of this type are run by whoever asked."""
    return kind in _OWN_TOOLS


def refuse_what_has_no_price(
    further: Mapping[str, Any],
    *,
    elsewhere: frozenset[str] = frozenset(),
    theirs: Callable[[Any], bool] = runs_itself,
    known: str = "`function` and `custom`",
) -> None:
    """RequestRefused.

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
    for tool in tools if isinstance(tools, list) else () if tools is None else (tools,):
        if not isinstance(tool, dict) or not theirs(tool.get("type")):
            raise RequestRefused(
                f"Only tools of the types {known} are passed on: what others cost, no price here says.",
                remediation="Leave the others out of `tools`.",
                details={"param": "tools"},
            )
