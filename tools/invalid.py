"""What pydantic found wrong, told so that a caller can mend it: which field, what about it, what to send."""

import re
from typing import Any

from pydantic import BaseModel, ValidationError

from baobab.tools.errors import BadRequest, InvalidType, MissingField, UnknownField

_MOST = 10


_BRANCH = re.compile(r"[\[(]|^(?:constrained-)?(?:str|int|float|bool|list|dict|none)$")
"""What pydantic puts into a path for a branch of a union: no field is called so."""


def invalid(error: ValidationError, model: type[BaseModel]) -> BadRequest:
    """One error for all faults; the first decides its code. Values are never repeated."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    fields = [{"field": _path(fault["loc"]), "problem": _problem(fault)} for fault in faults[:_MOST]]
    first, kind = fields[0], faults[0]["type"]
    message = f"`{first['field']}`: {first['problem']}."
    missing = [_path(fault["loc"]) for fault in faults[:_MOST] if fault["type"] == "missing"]
    unknown = [_path(fault["loc"]) for fault in faults[:_MOST] if fault["type"] == "extra_forbidden"]
    if kind in ("missing", "extra_forbidden"):
        return _misnamed(kind, missing, unknown, model, fields)
    if kind.endswith("_type") or kind == "is_instance_of":
        return InvalidType(message, details={"fields": fields})
    return BadRequest(message, details={"fields": fields})


def _misnamed(
    kind: str, missing: list[str], unknown: list[str], model: type[BaseModel], fields: list[dict[str, Any]]
) -> BadRequest:
    """An error that names the fields that are missing and those that are unknown: often they are misspelt."""
    said = [f"{_quoted(missing)} {'is' if len(missing) == 1 else 'are'} missing."] if missing else []
    if len(unknown) == 1:
        said.append(f"{_quoted(unknown)} is not a field of this operation.")
    elif unknown:
        said.append(f"{_quoted(unknown)} are not fields of this operation.")
    known = _quoted([info.alias or name for name, info in model.model_fields.items()]) or "none"
    action = "Remove it or correct its name" if len(unknown) == 1 else "Remove them or correct their names"
    if missing and unknown:
        action = "Add what is missing, and correct or remove what is unknown"
    # Inside another object, the fields are those of that object: the names above are the operation's own.
    remedy = f"{action}; the fields are {known}." if unknown else None
    error = MissingField if kind == "missing" else UnknownField
    return error(" ".join(said), remediation=remedy, details={"fields": fields})


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _path(location: tuple[Any, ...]) -> str:
    parts = [str(part) for number, part in enumerate(location) if number == 0 or not _BRANCH.search(str(part))]
    return ".".join(parts)[:200] or "body"


def _problem(fault: Any) -> str:
    text = str(fault["msg"]).removeprefix("Value error, ")
    return text[0].lower() + text[1:] if text.startswith(("Input", "String", "List", "Field")) else text
