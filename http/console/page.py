"""What a page of the console is: a function of a visit, its path, its template and its place in the menu."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.http.console.visit import Visit

Context = Mapping[str, Any]
Show = Callable[[Visit], Awaitable[Context]]
Act = Callable[[Visit], Awaitable[str]]
"""Does what a form asks for, and returns the path to go to."""
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Page:
    """path: below /console, with `{name}` for a part of it. menu: its name in the menu, if it has a place there.

    show: reads what the page shows. template: the page itself, or the name of a file in `templates/`.
    """

    path: str
    title: str
    template: str
    show: Show
    menu: str | None = None

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)


@dataclass(frozen=True, slots=True)
class Form:
    """What a form of a page sends: a POST to `path`, of which the answer leads to another page."""

    path: str
    act: Act

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)


def match_path(pattern: str, path: str) -> dict[str, str] | None:
    """The parts of a path by their names in the pattern; None if it does not fit."""
    expression = _PARAMETER.sub(r"(?P<\1>[A-Za-z0-9_.-]{1,80})", pattern)
    found = re.fullmatch(expression, path)
    return None if found is None else found.groupdict()
