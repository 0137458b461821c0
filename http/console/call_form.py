"""Forms made from JSON Schema: a field for each value of a call or an answer, and the values from what was typed.

A value that no field fits, such as a list of objects, is typed as JSON in a field of its own. What cannot be read says
so beside its field.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from baobab.tools.core.types import parse_json

_MOST_FIELDS, _MOST_CHOICES = 60, 100
_LONG = 80
Path = tuple[str, ...]


@dataclass(slots=True)
class FormField:
    """One field. kind: text, lines, number, boolean, choice, choices or json. value: as it is before it is typed."""

    id: str
    path: Path
    kind: str
    label: str
    value: Any
    about: Mapping[str, Any]
    help: str = ""
    required: bool = False
    choices: Sequence[str] = ()
    typed: str | None = None
    """What was typed, where the form is shown again."""
    error: str = ""
    is_locked: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def text(self) -> str:
        """The text of the field."""
        if self.typed is not None:
            return self.typed
        if self.value is None or self.value is MISSING:
            return "" if self.kind != "json" or self.value is MISSING else "null"
        if self.kind == "json":
            return json.dumps(self.value, indent=2, ensure_ascii=False)
        if self.kind == "lines":
            return "\n".join(self.value)
        return self.value if isinstance(self.value, str) else json.dumps(self.value)

    @property
    def is_long(self) -> bool:
        """Whether the text needs several lines."""
        longest = self.about.get("maxLength", 0)
        return "\n" in self.text or len(self.text) > _LONG or (isinstance(longest, int) and 200 < longest <= 100_000)


MISSING: Any = object()
"""Stands for a value that is not there."""


@dataclass(slots=True)
class CallForm:
    """The fields of a call or an answer. values: what they were before."""

    fields: list[FormField]
    values: Mapping[str, Any]
    errors: list[str] = field(default_factory=list)
    """Errors that belong to no field."""
    is_answer: bool = False
    """Whether a field that is left empty is left out of the values."""

    def read(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Returns the values with what was typed. Fields that cannot be read keep an error; see `is_valid`."""
        values: dict[str, Any] = deepcopy(dict(self.values))
        for each in self.fields:
            if each.is_locked:
                continue
            value = _read_field(each, form, may_miss=self.is_answer and not each.required)
            if value is not MISSING:
                _put(values, each.path, value)
            elif each.value is not MISSING:
                _remove(values, each.path)
        return values

    @property
    def is_valid(self) -> bool:
        return not self.errors and not any(each.error for each in self.fields)

    def add_error(self, path: Sequence[Any], message: str) -> None:
        """Puts an error beside the field that it is about, or above the form."""
        names = tuple(map(str, path))
        for each in self.fields:
            if names and (each.path[: len(names)] == names or names[: len(each.path)] == each.path):
                each.error = each.error or message
                return
        self.errors.append(message)

    def lock(self, open_places: Sequence[str]) -> None:
        """Locks all fields but those in some places, which are written as in a node's `edit`: `changes.amount`."""
        open_paths = [tuple(place.split(".")) for place in open_places]
        for each in self.fields:
            each.is_locked = not any(each.path[: len(path)] == path for path in open_paths)


def build_answer_form(schema: Any, data: Mapping[str, Any] | None) -> CallForm | None:
    """Builds the form of an answer: a field for each property of its schema. None where the schema has none, or the
    question came with data that the schema does not name: then the answer is typed as text or JSON.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not 0 < len(properties) <= _MOST_FIELDS:
        return None
    if set(data or ()) - set(properties):
        return None
    required_names = [name for name in schema.get("required", []) if name in properties]
    # Databases do not keep the order of an object, but that of a list.
    names = [*dict.fromkeys(required_names), *sorted(set(properties) - set(required_names))]
    fields: list[FormField] = []
    for name in names:
        about = properties[name] if isinstance(properties[name], dict) else {}
        value = (data or {}).get(name, about.get("default", MISSING))
        _add_field(fields, (name,), about, value, is_required=name in required_names)
    return CallForm(fields, data or {}, is_answer=True)


def build_call_form(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> CallForm:
    """Builds the form of a call: a field for each value of its arguments. schema: of the tool's arguments."""
    fields: list[FormField] = []
    properties = schema.get("properties", {})
    for name, value in arguments.items():
        _spread(fields, (name,), properties.get(name, {}), value, is_required=name in schema.get("required", ()))
    return CallForm(fields, arguments)


def _spread(fields: list[FormField], path: Path, about: Any, value: Any, *, is_required: bool) -> None:
    """Adds the fields of a value: of an object, those of its values."""
    about = about if isinstance(about, Mapping) else {}
    if not isinstance(value, dict) or not value or len(path) > 3 or len(fields) + len(value) > _MOST_FIELDS:
        _add_field(fields, path, about, value, is_required=is_required)
        return
    for name, item in value.items():
        inner = about.get("properties", {}).get(name, about.get("additionalProperties"))
        _spread(fields, (*path, name), inner, item, is_required=name in about.get("required", ()))


def _add_field(fields: list[FormField], path: Path, about: Any, value: Any, *, is_required: bool) -> None:
    about = _without_null(about)
    kind = _find_kind(about, value)
    choices = about["enum"] if kind == "choice" else about["items"]["enum"] if kind == "choices" else ()
    label, explanation = str(about.get("title") or path[-1]), str(about.get("description") or "")
    fields.append(
        FormField(f"answer-{len(fields)}", path, kind, label, value, about, explanation, is_required, choices)
    )


def _without_null(about: Any) -> Mapping[str, Any]:
    """Returns the one variant of a schema that is not null, if there is one."""
    if not isinstance(about, Mapping):
        return {}
    variants = [each for each in about.get("anyOf", ()) if isinstance(each, Mapping) and each.get("type") != "null"]
    if len(variants) != 1:
        return about
    return {**variants[0], **{name: text for name, text in about.items() if name in ("title", "description")}}


def _find_kind(about: Mapping[str, Any], value: Any) -> str:
    """Returns the kind of field that holds a value of a schema: `json` where none does."""
    has_value = value is not MISSING and value is not None
    if _are_texts(about.get("enum")) and (not has_value or isinstance(value, str)):
        return "choice"
    items, of_type = about.get("items"), about.get("type", "")
    if of_type == "array" and isinstance(items, dict) and (not has_value or _are_short_texts(value)):
        return "choices" if _are_texts(items.get("enum")) else "lines" if items.get("type") == "string" else "json"
    if has_value and not about.get("type"):
        # Where the schema says nothing, the value does.
        of_type = {str: "string", bool: "boolean", int: "number", float: "number"}.get(type(value), "")
    kinds = {"string": "text", "number": "number", "integer": "number", "boolean": "boolean"}
    kind = kinds.get(of_type, "json") if isinstance(of_type, str) else "json"
    fits = {"text": str, "number": int | float, "boolean": bool}
    is_number = kind == "number" and isinstance(value, bool)
    return "json" if has_value and kind in fits and (is_number or not isinstance(value, fits[kind])) else kind


def _are_texts(choices: Any) -> bool:
    is_short = isinstance(choices, list) and 0 < len(choices) <= _MOST_CHOICES
    return is_short and all(isinstance(choice, str) for choice in choices)


def _are_short_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and "\n" not in item for item in value)


def _read_field(each: FormField, form: Mapping[str, str], *, may_miss: bool) -> Any:  # noqa: PLR0911 (one a kind)
    """Returns what was typed in a field; MISSING where it was left empty and may be.

    may_miss: whether an empty field is no value; else it is one, unless there was none before.
    """
    may_miss = may_miss or (not each.required and each.value in (MISSING, None))
    text = form.get(each.id, "").replace("\r\n", "\n")
    if each.kind not in ("boolean", "choices"):
        if each.id not in form:
            return each.value
        untouched_text, each.typed = each.text, text
        # What nobody touched stays what it was, line ends among it.
        if each.value is not MISSING and text == untouched_text.replace("\r\n", "\n"):
            return each.value
    match each.kind:
        case "boolean":
            each.typed = "true" if text == "yes" else "false"
            return text == "yes"
        case "choices":
            choices = [choice for n, choice in enumerate(each.choices) if f"{each.id}.{n}" in form]
            each.value = choices
            return choices
        case "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "number":
            return MISSING if may_miss and not text.strip() else _read_number(each, text.strip())
        case "json":
            return MISSING if may_miss and not text.strip() else _read_json(each, text)
    return MISSING if not text and (may_miss or (each.kind == "choice" and not each.required)) else text


def _read_number(each: FormField, text: str) -> Any:
    is_integer = each.about.get("type") == "integer"
    try:
        number = int(text) if is_integer or text.lstrip("-").isdecimal() else float(text)
        if not isfinite(number):
            raise ValueError
    except (ValueError, OverflowError):
        each.error = f"Type a {'whole ' if is_integer else ''}number, such as 12."
        return each.value
    return number


def _read_json(each: FormField, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as exc:
        each.error = f'This is not JSON ({exc}). Text needs quotes: "yes".'
        return each.value


def _put(values: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _remove(values: dict[str, Any], path: Path) -> None:
    for name in path[:-1]:
        values = values.get(name, {})
    values.pop(path[-1], None)
