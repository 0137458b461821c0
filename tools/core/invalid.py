"""Invalid arguments: turns pydantic's faults into errors that say which field is wrong and what to send."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from baobab.tools.core.errors import BadRequest, InvalidType, MissingField, UnknownField
from baobab.tools.core.schema import find_example

_MOST = 10


_BRANCH = re.compile(r"[\[(]|^(?:constrained-)?(?:str|int|float|bool|list|dict|none)$")
"""Parts of pydantic's paths that name a branch of a union and no field."""
_PATTERN = re.compile(r"String should match pattern '(.*)'", re.DOTALL)


def invalid(error: ValidationError, model: type[BaseModel], schema: Mapping[str, Any]) -> BadRequest:
    """Builds one error for all faults; the first decides its code. It never contains values.

    schema: the model's JSON Schema, whose examples are shown.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    fields = [{"field": _path(fault["loc"]), "problem": describe_fault(fault, schema)} for fault in faults[:_MOST]]
    first, kind = fields[0], faults[0]["type"]
    message = f"`{first['field']}`: {first['problem']}{_show_form(faults[0]['loc'], first['problem'], schema)}."
    missing_names = [_path(fault["loc"]) for fault in faults[:_MOST] if fault["type"] == "missing"]
    unknown_names = [_path(fault["loc"]) for fault in faults[:_MOST] if fault["type"] == "extra_forbidden"]
    if kind in ("missing", "extra_forbidden"):
        return _field_names_error(kind, missing_names, unknown_names, model, fields)
    if kind.endswith("_type") or kind == "is_instance_of":
        return InvalidType(message, details={"fields": fields})
    return BadRequest(message, details={"fields": fields})


def _show_form(location: tuple[str | int, ...], problem: str, schema: Mapping[str, Any]) -> str:
    """Returns an example of an argument's form, if it has one and the problem does not show it yet."""
    examples = schema.get("properties", {}).get(location[0] if location else "", {}).get("examples")
    if not examples or "should look like" in problem or not isinstance(examples[0], str | dict | list):
        return ""
    return f"; its form is {to_json(examples[0]).decode()}"


Location = tuple[str | int, ...]
"""The path of a value in the arguments of a call."""


def find_nulls(arguments: Mapping[str, Any], error: ValidationError) -> set[Location]:
    """Returns the paths of known fields, at any depth, that were refused and are null."""
    faults = error.errors(include_url=False, include_input=False)
    places = (follow(arguments, fault["loc"]) for fault in faults if fault["type"] != "extra_forbidden")
    return {place for place, value in places if value is None and place and isinstance(place[-1], str)}


def find_missing(arguments: Mapping[str, Any], error: ValidationError) -> set[Location]:
    """Returns the paths of required fields, at any depth, that are missing."""
    faults = error.errors(include_url=False, include_input=False)
    missing_locations = [fault["loc"] for fault in faults if fault["type"] == "missing"]
    return {(*follow(arguments, location)[0], location[-1]) for location in missing_locations}


def leave_out(value: Any, places: set[Location], path: Location = ()) -> Any:
    """Returns a copy of a value without the parts at some paths."""
    if isinstance(value, Mapping):
        remaining = {name: item for name, item in value.items() if (*path, name) not in places}
        return {name: leave_out(item, places, (*path, name)) for name, item in remaining.items()}
    if isinstance(value, list):
        return [leave_out(item, places, (*path, at)) for at, item in enumerate(value)]
    return value


def follow(value: Any, location: Location) -> tuple[Location, Any]:
    """Returns the path of a fault as far as it exists, and the value there. Branches of unions are skipped."""
    path: list[str | int] = []
    for part in location:
        within = isinstance(value, Mapping) and part in value
        if within or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            path.append(part)
            value = value[part]
    return tuple(path), value


def _field_names_error(
    kind: str, missing_names: list[str], unknown_names: list[str], model: type[BaseModel], fields: list[dict[str, Any]]
) -> BadRequest:
    """Builds an error that names both missing and unknown fields: often one is the other misspelt."""
    sentences = (
        [f"{_quote_names(missing_names)} {'is' if len(missing_names) == 1 else 'are'} missing."]
        if missing_names
        else []
    )
    if len(unknown_names) == 1:
        near_names = get_close_matches(unknown_names[0], model.model_fields, 1)
        guess = f" Did you mean `{near_names[0]}`?" if near_names else ""
        sentences.append(f"{_quote_names(unknown_names)} is not a field of this operation.{guess}")
    elif unknown_names:
        sentences.append(f"{_quote_names(unknown_names)} are not fields of this operation.")
    field_names = _quote_names([info.alias or name for name, info in model.model_fields.items()]) or "none"
    action = "Remove it or correct its name" if len(unknown_names) == 1 else "Remove them or correct their names"
    if missing_names and unknown_names:
        action = "Add what is missing, and correct or remove what is unknown"
    # Inside another object, the fields are those of that object: the names above are the operation's own.
    remedy = f"{action}; the fields are {field_names}." if unknown_names else None
    error = MissingField if kind == "missing" else UnknownField
    return error(" ".join(sentences), remediation=remedy, details={"fields": fields})


def _quote_names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _path(location: tuple[Any, ...]) -> str:
    parts = [str(part) for number, part in enumerate(location) if number == 0 or not _BRANCH.search(str(part))]
    return ".".join(parts)[:200] or "body"


def describe_fault(fault: Any, schema: Mapping[str, Any]) -> str:
    """Returns what is wrong with a value. schema: the JSON Schema around it, whose examples are shown."""
    if fault["type"] == "dict_type":
        # Pydantic calls it by its name in Python, which no client sends.
        return "input should be an object"
    text = str(fault["msg"]).removeprefix("Value error, ")
    if (match := _PATTERN.fullmatch(text)) and (example := find_example(schema, match[1])):
        return f"string should look like `{example}` and match '{match[1]}'"
    return text[0].lower() + text[1:] if text.startswith(("Input", "String", "List", "Field")) else text
