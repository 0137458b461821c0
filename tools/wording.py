"""Wording: what a proposed call would do, said so that a person can decide."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from baobab.tools.callers import Caller, EndUser
from baobab.tools.effects import Effect
from baobab.tools.escaping import escape_json, escape_name

if TYPE_CHECKING:
    from baobab.tools.tool import Tool

_LONGEST_VALUE = 300
_MOST_FIELDS = 50
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
        lines.append(f"It acts for the app's user {escape_name(caller.user_id)}.")
    fields = list(shown(tool, arguments).items())
    lines += [f"{escape_name(name)}: {_shown(value)}" for name, value in fields[:_MOST_FIELDS]]
    if len(fields) > _MOST_FIELDS:
        hidden = len(fields) - _MOST_FIELDS
        lines.append(f"{hidden} more fields are not shown here; read all of the arguments.")
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
    text = escape_json(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    hidden = len(text) - _LONGEST_VALUE
    return f"{text[:_LONGEST_VALUE]}… ({hidden} more characters are not shown here; read all of the arguments)"
