"""What pydantic found wrong, told so that a caller can mend it: which field, what about it, what to send."""

from typing import Any

from pydantic import BaseModel, ValidationError

from baobab.tools.errors import BadRequest, InvalidType, MissingField, UnknownField

_MOST = 10


def invalid(error: ValidationError, model: type[BaseModel]) -> BadRequest:
    """One error for all faults; the first decides its code. Values are never repeated."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    fields = [{"field": _path(fault["loc"]), "problem": _problem(fault)} for fault in faults[:_MOST]]
    first, kind = fields[0], faults[0]["type"]
    message = f"`{first['field']}`: {first['problem']}."
    if kind == "missing":
        return MissingField(f"`{first['field']}` is missing.", details={"fields": fields})
    if kind == "extra_forbidden":
        known = ", ".join(f"`{name}`" for name in model.model_fields)
        return UnknownField(
            f"`{first['field']}` is not a field of this operation.",
            remediation=f"Remove it or correct its name; the fields are {known or 'none'}.",
            details={"fields": fields},
        )
    if kind.endswith("_type") or kind == "is_instance_of":
        return InvalidType(message, details={"fields": fields})
    return BadRequest(message, details={"fields": fields})


def _path(location: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in location)[:200] or "body"


def _problem(fault: Any) -> str:
    text = str(fault["msg"]).removeprefix("Value error, ")
    return text[0].lower() + text[1:] if text.startswith(("Input", "String", "List", "Field")) else text
