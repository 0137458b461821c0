"""Wording: what a proposed call would do, said so that a person can decide."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from baobab.tools.callers import Caller, EndUser
from baobab.tools.effects import Effect

if TYPE_CHECKING:
    from baobab.tools.tool import Tool

_LONGEST_VALUE = 300
_CONSEQUENCE = {
    "write": "It changes what is stored.",
    "external": "It leaves the platform: what is sent or paid cannot be taken back.",
    "destructive": "It destroys or replaces something; that cannot be undone.",
}


def worded(
    tool: "Tool",
    arguments: Mapping[str, Any],
    caller: Caller,
    *,
    effect: Effect | None = None,
    tainted: bool = False,
) -> str:
    """The tool's own first sentence, what follows from it, and every argument; secrets are not shown.

    effect: that of the call, where it is not the tool's.
    """
    lines = [tool.summary, _CONSEQUENCE.get(effect or tool.effect, "")]
    if tainted:
        lines.append("The run that asks has read text that strangers may have written: this may be their wish.")
    if isinstance(caller, EndUser):
        lines.append(f"It acts for the app's user {caller.user_id}.")
    lines += [f"{name}: {_shown(value)}" for name, value in shown(tool, arguments).items()]
    return "\n".join(line for line in lines if line)


def shown(tool: "Tool", arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a person may see them: what their schema calls write-only is a secret."""
    safe: dict[str, Any] = _without_secrets(tool.input_schema, dict(arguments))
    return safe


def _without_secrets(schema: Mapping[str, Any], value: Any) -> Any:
    if schema.get("writeOnly"):
        return "(hidden)"
    for variant in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        value = _without_secrets(variant, value)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        rest = others if isinstance(others, dict) else {}
        return {name: _without_secrets(properties.get(name, rest), item) for name, item in value.items()}
    if isinstance(value, list):
        items = schema.get("items")
        return [_without_secrets(items if isinstance(items, dict) else {}, item) for item in value]
    return value


def _shown(value: Any) -> str:
    # JSON escapes line ends and controls: an argument cannot pass for a line of ours.
    text = json.dumps(value, ensure_ascii=False)
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"
