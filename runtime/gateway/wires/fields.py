"""Fields of a request, read with the refusal that names them."""

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
        raise field_error(f"{at}.{name}", "is a text")
    return value


def get_object(holder: Mapping[str, Any], name: str, at: str = "") -> Mapping[str, Any]:
    """The object of that name; an empty one where there is none."""
    value = holder.get(name)
    if value is not None and not isinstance(value, dict):
        raise field_error(f"{at}.{name}" if at else name, "is an object")
    return value or {}


def list_objects(holder: Mapping[str, Any], name: str, at: str = "") -> list[tuple[str, dict[str, Any]]]:
    """The objects of the array of that name, each with where it stands; none where there is no array."""
    where, value = f"{at}.{name}" if at else name, holder.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise field_error(where, "is an array")
    for number, each in enumerate(value):
        if not isinstance(each, dict):
            raise field_error(f"{where}[{number}]", "is an object")
    return [(f"{where}[{number}]", each) for number, each in enumerate(value)]


def resolve_path(path: str, request: Mapping[str, Any]) -> str:
    """As much of a path such as `messages[0].content` as leads into the request: no word in it is anybody else's."""
    here: Any = request
    end = 0
    while step := _STEP.match(path, end):
        name = step[1]
        if isinstance(here, Mapping) and name in here:
            here = here[name]
        elif isinstance(here, list) and _INDEX.fullmatch(name) and int(name) < len(here):
            here = here[int(name)]
        else:
            break
        end = step.end()
    return path[:end]
