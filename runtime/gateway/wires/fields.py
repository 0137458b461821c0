"""Reads fields of a request; an error names the field."""

import re
from collections.abc import Mapping
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused

_STEP = re.compile(r"\.?\[?([^.\[\]]+)\]?")
_INDEX = re.compile(r"[0-9]{1,6}")


def field_error(at: str, problem: str) -> RequestRefused:
    return RequestRefused(f"`{at}` {problem}.", details={"param": at})


def require_text(holder: Mapping[str, Any], name: str, at: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise field_error(f"{at}.{name}", "must be a text")
    return value


def get_object(holder: Mapping[str, Any], name: str, at: str = "") -> Mapping[str, Any]:
    """Returns the object of that name; an empty one if it is missing."""
    value = holder.get(name)
    if value is not None and not isinstance(value, dict):
        raise field_error(f"{at}.{name}" if at else name, "must be an object")
    return value or {}


def list_objects(holder: Mapping[str, Any], name: str, at: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Returns the objects in the array of that name, each with its path; none if it is missing."""
    where, value = f"{at}.{name}" if at else name, holder.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise field_error(where, "must be an array")
    for number, each in enumerate(value):
        if not isinstance(each, dict):
            raise field_error(f"{where}[{number}]", "must be an object")
    return [(f"{where}[{number}]", each) for number, each in enumerate(value)]


def resolve_path(path: str, request: Mapping[str, Any]) -> str:
    """Returns the part of a path such as `messages[0].content` that exists in the request, so nothing else leaks."""
    current: Any = request
    end = 0
    while step := _STEP.match(path, end):
        name = step[1]
        if isinstance(current, Mapping) and name in current:
            current = current[name]
        elif isinstance(current, list) and _INDEX.fullmatch(name) and int(name) < len(current):
            current = current[int(name)]
        else:
            break
        end = step.end()
    return path[:end]
