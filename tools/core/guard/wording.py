"""Wording: what a proposed call would do, said so that a person can decide."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from baobab.tools.core.call import Tool
from baobab.tools.core.errors import BadRequest, name_operations
from baobab.tools.core.guard.escaping import escape_json, escape_name
from baobab.tools.core.guard.titles import is_plain, join_parts

_LONGEST_VALUE = 300
_MOST_FIELDS = 50
_NOTHING: Any = object()
HIDDEN = "(hidden)"
"""Stands in place of a secret."""
COUNTED = ", counted"
"""What stands behind a name where its operations are counted; a name that has it itself is quoted."""
OUTCOME = ", outcome"
"""The name under which the sentence about the call stands among its fields; an argument of this name is quoted."""
LABELLED = ", labelled"
"""The same, with the label of the row that the call is about."""
TITLE = ", title"
"""The title that the author of a graph gives the call, as a JSON list of its parts (titles.py)."""
EXCERPT = ", excerpt"
"""One line of the text that the call proposes."""
BUTTON = ", button"
"""What a button says that approves the call, by the title of the graph's author."""
LABEL = ", label"
"""The name under which `Tool.outcome` is given the label of the row that the call is about, among the arguments."""
_MARKS = (OUTCOME, LABELLED, TITLE, EXCERPT, BUTTON)
_LONGEST_QUOTE = 100
Fields = Sequence[tuple[str, str]]
"""The arguments of a call as a person reads them: names and texts."""
_CONSEQUENCE = {
    "write": "It changes what is stored.",
    "external": "It reaches outside the server: what is sent or paid cannot be taken back.",
    "destructive": "It destroys or replaces something; that cannot be undone.",
}


class HiddenIsUnknown(BadRequest):
    code = "APPROVAL_HIDDEN_UNKNOWN"
    summary = f"A secret reads `{HIDDEN}` where none was asked with."
    remediation = (
        "Write the secret itself, or leave it as it was; in a list, leave the rest of its item as it was, too."
    )


def render_fields(tool: Tool, arguments: Mapping[str, Any]) -> Fields:
    """Returns every argument by its name, as a person reads it: without secrets, and long values cut, with what was cut
    counted.

    A batch of operations follows the number of each kind. Before all stands the sentence that the tool says of them.
    """
    safe_arguments = redact_arguments(tool, arguments)
    consequence = None if tool.outcome is None else tool.outcome(safe_arguments)
    fields: list[tuple[str, str]] = [] if consequence is None else [(OUTCOME, consequence)]
    for name, value in safe_arguments.items():
        counts = _count_operations(_field_schema(tool.input_schema, name), value)
        if counts:
            fields.append((escape_name(name) + COUNTED, counts))
        fields.append((escape_name(name), _shorten_value(value)))
    return fields


def describe_call(
    tool: Tool | None,
    fields: Fields,
    *,
    effect: str,
    tainted: bool = False,
    user_id: str | None = None,
    as_app: bool = False,
) -> str:
    """Describes a call: its title or else the tool's first sentence, its consequence, and every argument.

    tool: None if it no longer exists. user_id: the app's user for whom the call acts.
    as_app: whether it uses the app's right and not that of whoever asks.
    """
    marks = {name: text for name, text in fields if name in _MARKS}
    summary = "An operation that no longer exists." if tool is None else name_operations(tool.summary)
    if TITLE in marks or OUTCOME in marks:
        title = marks.get(OUTCOME) if TITLE not in marks else join_parts(json.loads(marks[TITLE]))
        summary = f"{title}."
    consequence = None if tool is None else tool.consequence
    lines = [summary, consequence or _CONSEQUENCE.get(effect, "")]
    if tainted:
        lines.append("The run that asks has read text from outside.")
    if as_app:
        lines.append("It uses the right of the app, not that of whoever asks.")
    elif user_id is not None:
        lines.append(f"It acts for the app's user {escape_name(user_id)}.")
    arguments = [(name, text) for name, text in fields if name not in _MARKS]
    lines += [f"{name}: {text}" for name, text in arguments[:_MOST_FIELDS]]
    if len(arguments) > _MOST_FIELDS:
        hidden_count = len(arguments) - _MOST_FIELDS
        lines.append(f"{hidden_count} more fields are not shown here; read all of the arguments.")
    return "\n".join(line for line in lines if line)


def quote_text(text: object) -> str:
    """Returns what a proposer chose as a string of JSON, cut if it is long: where it ends, only we can say."""
    plain_text = str(text)
    return escape_json(plain_text if len(plain_text) <= _LONGEST_QUOTE else f"{plain_text[:_LONGEST_QUOTE]}…")


def quote_plain(text: object, otherwise: str) -> str:
    """Returns what a proposer chose, quoted, if it is a plain name; else other words of ours.

    For titles of calls that destroy something: no free text of a stranger stands in them.
    """
    return quote_text(text) if is_plain(str(text)) else otherwise


def list_names(names: Sequence[object], most: int = 3) -> str:
    """Returns the first few names of an app's own things, such as columns, and how many more there are."""
    plain_names = [escape_name(str(name)) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(plain_names)} and {len(names) - most} more"
    return " and ".join(filter(None, (", ".join(plain_names[:-1]), *plain_names[-1:])))


def list_texts(texts: Sequence[object], most: int = 3) -> str:
    """Returns the first few of what a proposer chose, each quoted, and how many more there are."""
    quoted_texts = [quote_text(text) for text in texts[:most]]
    if len(texts) > most:
        return f"{', '.join(quoted_texts)} and {len(texts) - most} more"
    return " and ".join(filter(None, (", ".join(quoted_texts[:-1]), *quoted_texts[-1:])))


def redact_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments as a person may see them. Those that their schema calls write-only are secret."""
    safe_arguments: dict[str, Any] = _without_secrets(tool.input_schema, dict(arguments))
    return safe_arguments


def restore_hidden(
    tool: Tool, proposed_arguments: Mapping[str, Any], edited_arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arguments that a person edited, with the proposed secrets in place of `(hidden)`.

    Raises HiddenIsUnknown if a text reads `(hidden)` where nothing was proposed.
    """
    restored_arguments: dict[str, Any] = _with_secrets(
        tool.input_schema, dict(proposed_arguments), dict(edited_arguments)
    )
    return restored_arguments


def _with_secrets(schema: Mapping[str, Any], proposed_value: Any, edited_value: Any) -> Any:
    if schema.get("writeOnly") and edited_value == HIDDEN:
        if proposed_value is _NOTHING or proposed_value is None:
            raise HiddenIsUnknown
        return proposed_value
    for variant in _variants(schema):
        edited_value = _with_secrets(variant, proposed_value, edited_value)
    if isinstance(edited_value, dict):
        before = proposed_value if isinstance(proposed_value, dict) else {}
        return {
            name: _with_secrets(_field_schema(schema, name), before.get(name, _NOTHING), item)
            for name, item in edited_value.items()
        }
    if isinstance(edited_value, list):
        earlier, items = proposed_value if isinstance(proposed_value, list) else [], _item_schema(schema)
        # Matched by its position, and only if everything else in the item is unchanged.
        return [
            _with_secrets(items, earlier[n] if _is_alike(items, earlier[n : n + 1], item) else _NOTHING, item)
            for n, item in enumerate(edited_value)
        ]
    return edited_value


def _is_alike(schema: Mapping[str, Any], earlier: list[Any], item: Any) -> bool:
    return bool(earlier) and _without_secrets(schema, earlier[0]) == _without_secrets(schema, item)


def _variants(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ()))


def _field_schema(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    further_schema = schema.get("additionalProperties")
    field_schema: Mapping[str, Any] = schema.get("properties", {}).get(
        name, further_schema if isinstance(further_schema, dict) else {}
    )
    return field_schema


def _item_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    items = schema.get("items")
    return items if isinstance(items, dict) else {}


def _without_secrets(schema: Mapping[str, Any], value: Any) -> Any:
    if schema.get("writeOnly") and value is not None:
        return HIDDEN
    for variant in _variants(schema):
        value = _without_secrets(variant, value)
    if isinstance(value, dict):
        return {name: _without_secrets(_field_schema(schema, name), item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(_item_schema(schema), item) for item in value]
    return value


def _shorten_value(value: Any) -> str:
    text = escape_json(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    hidden_count = len(text) - _LONGEST_VALUE
    return f"{text[:_LONGEST_VALUE]}… ({hidden_count} more characters are not shown here; read all of the arguments)"


def _count_operations(schema: Mapping[str, Any], value: Any) -> str | None:
    """Returns how many operations of each kind a batch has; None if the value is no batch."""
    kinds = _item_schema(schema).get("properties", {}).get("op", {}).get("enum")
    if kinds is None or not isinstance(value, list):
        return None
    operations = [item.get("op") if isinstance(item, dict) else None for item in value]
    counts = [f"{operations.count(kind)} {kind}" for kind in kinds if kind in operations]
    other_count = sum(kind not in kinds for kind in operations)
    return ", ".join(counts + ([f"{other_count} of no known kind"] if other_count else [])) or "none"
