"""What a page of the console is: a function of a visit, its path, its template and its place in the menu."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.http.console.visit import Visit
from baobab.tools.core.stream import Stream

Context = Mapping[str, Any]
Show = Callable[[Visit], Awaitable[Context]]
Act = Callable[[Visit], Awaitable[str | Context]]
"""Does what a form asks for, and returns the path to go to; or what its page shows once, such as a secret."""
Open = Callable[[Visit], Awaitable[Stream]]
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Page:
    """path: below /console, with `{name}` for a part of it. show: reads what the page shows.

    template: the page itself, or the name of a file in `templates/`. Pages of an app extend `app.html`.
    menu: its name in the menu, if it has a place there. of_account: whether that is the menu of the account.
    tab: its name among the pages of an app. rank: what has a lower one stands before it.
    """

    path: str
    title: str
    template: str
    show: Show
    menu: str | None = None
    of_account: bool = False
    tab: str | None = None
    rank: int = 50
    follows_inbox: bool = False
    """Whether it shows what waits for a decision, and is asked for again when that changes."""
    frame: bool = False
    """Whether other pages of the console show it in a frame: nothing in it runs or can be sent, whoever wrote it."""

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)


@dataclass(frozen=True, slots=True)
class Form:
    """What a form of a page sends: a POST to `path`, of which the answer leads to another page.

    template: of the page that is the answer itself, where `act` returns no path.
    """

    path: str
    act: Act
    template: str = ""

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)


@dataclass(frozen=True, slots=True)
class Feed:
    """What is sent piece by piece: the events that an open page follows, or a file.

    file_name: of a file, which the browser stores.
    """

    path: str
    open: Open
    file_name: str | None = None

    def match(self, path: str) -> dict[str, str] | None:
        return match_path(self.path, path)


def match_path(pattern: str, path: str) -> dict[str, str] | None:
    """The parts of a path by their names in the pattern; None if it does not fit."""
    expression = _PARAMETER.sub(r"(?P<\1>[A-Za-z0-9_.-]{1,100})", pattern)
    found = re.fullmatch(expression, path)
    return None if found is None else found.groupdict()
