"""Pages of the console. A page is a function of a visit, with a path, a template and a place in the menu."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.http.console.visit import Visit
from baobab.tools.core.stream import Stream

Context = Mapping[str, Any]
Show = Callable[[Visit], Awaitable[Context]]
Act = Callable[[Visit], Awaitable[str | Context]]
"""Handles a form, and returns the path to go to, or what its page shows once, such as a secret."""
Open = Callable[[Visit], Awaitable[Stream]]
MENU_GROUPS = ("", "Organisation", "Account")
APP_GROUPS = ("", "Data", "Agents", "People", "Operate")
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    path: below /console, with `{name}` for a variable part. show: returns what the template shows. template: the
    template itself, or the name of a file in `templates/`. Pages of an app extend `app.html`. menu: its name in the
    menu, if it is in the menu. tab: its name among the pages of an app. group: the heading under which the menu or the
    app has it: "Organisation" or "Account" of the menu, one of `APP_GROUPS` of an app; empty for what stands on top.
    icon: the name of a file in `icons/`. rank: pages with a lower rank come first.
    """

    path: str
    title: str
    template: str
    show: Show
    menu: str | None = None
    tab: str | None = None
    group: str = ""
    icon: str = "file"
    rank: int = 50
    on_phone: bool = False
    """Whether it stands in the bar at the bottom of a phone, which has place for three."""
    tool: str | None = None
    """The tool without which the page is nothing: whoever may not call it does not have the page in a menu."""
    for_approvers: bool = False
    """Whether somebody who only approves has it in the menu."""
    follows_inbox: bool = False
    """Whether the page shows what waits for a decision, and is reloaded when that changes."""
    frame: bool = False
    """Whether other pages of the console show this one in a frame, in which nothing runs and no form can be sent."""

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)

    def is_above(self, page: "Page") -> bool:
        """Returns whether another page lies below this one, as a row below its table."""
        return bool(self.path) and self.path != "/apps/{app}" and page.path.startswith(self.path + "/")


@dataclass(frozen=True, slots=True)
class Form:
    """A form on a page. It is sent as a POST to `path`, and `act` returns the path to go to next.

    template: the template of the answer, if `act` returns what to show instead of a path. largest_files: the most bytes
    of files that it may bring; 0 for a form without files.
    """

    path: str
    act: Act
    template: str = ""
    largest_files: int = 0

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)


@dataclass(frozen=True, slots=True)
class Feed:
    """A response that is sent piece by piece: the events that an open page follows, or a file.

    file_name: the name under which the browser stores a file.
    """

    path: str
    open: Open
    file_name: str | None = None

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)


def match_path(pattern: str, path: str) -> dict[str, str] | None:
    """Returns the variable parts of a path by their names in the pattern; None if the path does not match."""
    expression = _PARAMETER.sub(r"(?P<\1>[A-Za-z0-9_.-]{1,100})", pattern)
    match = re.fullmatch(expression, path)
    return None if match is None else match.groupdict()
