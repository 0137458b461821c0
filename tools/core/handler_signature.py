"""Reads what a tool takes and returns, and how it is described, from the signature and the docstring of its handler."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, Literal, Unpack, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from baobab.tools.core.binding import RegistrationError
from baobab.tools.core.call import Handler
from baobab.tools.core.types import OMITTED

_BEYOND_TITLE = re.compile(r"[.,;:(]")
"""Matches the end of the first clause of a summary, which is the tool's title."""
_FURTHER = inspect.Parameter.VAR_KEYWORD
_NONE = inspect.Parameter.empty


def read_hints(handler: Handler) -> dict[str, Any]:
    """Returns the types of a handler's parameters and of its result by name; of `**group: Unpack[Group]`, those of the
    group's fields.
    """
    hints = get_type_hints(handler, include_extras=True)
    for name, hint in list(hints.items()):
        if get_origin(hint) is Unpack:
            del hints[name]
            group = get_type_hints(get_args(hint)[0], include_extras=True)
            for field_name in group.keys() & hints.keys():
                raise RegistrationError(
                    f"{handler.__name__}: {field_name} is a parameter and a field of `**{name}`, too"
                )
            hints |= group
    return hints


def build_model(handler: Handler, hints: Mapping[str, Any]) -> tuple[type[BaseModel], Any]:
    """Returns the model of the arguments and the type of the result."""
    name = handler.__name__
    parameters = list(inspect.signature(handler).parameters.values())
    if not inspect.iscoroutinefunction(handler) or not parameters or parameters[0].name != "call":
        raise RegistrationError(f"{name}: a handler is `async def` and takes `call` first")
    if "return" not in hints:
        raise RegistrationError(f"{name}: say what it returns")
    descriptions = _parameter_texts(handler)
    fields: dict[str, Any] = {}
    extra: Literal["allow", "forbid"] = "forbid"
    by_name = {parameter.name: parameter for parameter in parameters[1:]}
    for parameter_name in (p.name for p in parameters[1:] if p.kind is not _FURTHER and p.name not in hints):
        raise RegistrationError(f"{name}: {parameter_name} has no type")
    for argument, hint in hints.items():
        # The field of a group is no parameter by itself, and holds its default in its type.
        parameter = by_name.get(argument)
        if parameter is not None and parameter.kind is _FURTHER:
            if hint is not Any:
                raise RegistrationError(f"{name}: `**{argument}` is `Any`, or `Unpack[Group]` with `typing.Unpack`")
            # `**further: Any` takes what the operation passes on without knowing it.
            extra = "allow"
        elif argument not in ("call", "return"):
            fields[argument] = (
                hint,
                _field(_NONE if parameter is None else parameter.default, descriptions.pop(argument, None)),
            )
    if descriptions:
        raise RegistrationError(f"{name}: the docstring describes {', '.join(descriptions)}, which it does not take")
    model = create_model(name, __config__=ConfigDict(strict=True, extra=extra, defer_build=True), **fields)
    return model, hints["return"]


def _field(default: Any, description: str | None) -> FieldInfo:
    settings: dict[str, Any] = {"description": description} if description else {}
    if default is OMITTED:
        # A factory keeps the sentinel out of the JSON schema.
        settings["default_factory"] = lambda: OMITTED
    elif default is not _NONE:
        settings["default"] = default
    field: FieldInfo = Field(**settings)
    return field


def read_docstring(handler: Handler) -> tuple[str, str, str]:
    """Returns the title, the first sentence and the description of a tool."""
    text = inspect.getdoc(handler)
    if not text:
        raise RegistrationError(f"{handler.__name__}: a tool without a docstring cannot be chosen by anybody")
    paragraphs = [p.strip() for p in text.split("\n\n")]
    prose = [p for p in paragraphs if not _is_reference(p)]
    summary = " ".join(paragraphs[0].split())
    title = _BEYOND_TITLE.split(summary, maxsplit=1)[0].strip().replace("`", "")
    return title, summary, "\n\n".join(" ".join(p.split()) for p in prose)


def _is_reference(paragraph: str) -> bool:
    return bool(re.match(r"^(\w+): |^Raises ", paragraph))


def _parameter_texts(handler: Handler) -> dict[str, str]:
    texts: dict[str, str] = {}
    for paragraph in (inspect.getdoc(handler) or "").split("\n\n")[1:]:
        current = None
        for line in paragraph.splitlines():
            match = re.match(r"^(\w+): (.+)$", line)
            if match:
                current = match[1]
                texts[current] = match[2]
            elif current and line.startswith(" "):
                texts[current] += " " + line.strip()
            elif current:
                raise RegistrationError(f"{handler.__name__}: what goes on about `{current}` is not indented: {line}")
            else:
                break
    return texts
