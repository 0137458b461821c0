"""Events of apps: what can start something, as toolsets declare it, and the port through which domains tell them.

An event that no trigger of the app waits for costs nothing but a look into a cache (`Subscriptions.waits_for`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from baobab.storage.sql.database import Unit
from baobab.tools.core.auth.directory import App

ROWS_CHANGED = "rows.changed"
"""The type of what happens to rows of an app's tables. They are never emitted: the change log of the app holds them."""
HOUR = "schedule"
"""The name of the event that is an hour of a trigger's own."""
KEY_CHANGED = "key.changed"
"""The name of the event, and its type, that a key has another value."""
CUSTOM = "custom."
"""What the names of events begin with that an app emits itself."""


def _applies_always(data: Mapping[str, Any]) -> bool:
    del data
    return True


@dataclass(frozen=True, slots=True)
class AppEvent:
    """An event for which triggers of an app can wait, as a toolset declares it.

    name: what triggers call it. of: the type under which the domain emits it. sample: what `data` holds, by example.
    subject: the field of `data` that names what the event is about: deliveries of one subject have an order.
    """

    name: str
    of: str
    description: str
    sample: Mapping[str, Any]
    subject: str
    applies: Callable[[Mapping[str, Any]], bool] = field(default=_applies_always, repr=False)
    """Whether what was emitted is this event, where one type stands for several."""
    has_prefix: bool = False
    """Whether triggers name the beginning of what it is about: whatever begins otherwise costs nothing."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One event that has happened.

    id: the same whenever it is told again. sequence: orders the events of one subject; None for the order in which they
    are taken. run_id: the run of an agent that caused it. is_outside: whether a user, a visitor or a text from outside
    caused it, as far as whoever tells it knows; what the run has read counts as well.
    """

    id: str
    name: str
    at: datetime
    subject: str
    data: Mapping[str, Any]
    sequence: int | None = None
    run_id: str | None = None
    is_outside: bool = True
    depth: int = 0
    """How many triggers lie before it, where a function that one of them called has caused it."""


class Subscriptions(Protocol):
    """The port through which domains learn that triggers wait, and tell them what has happened."""

    async def waits_for(self, app_id: str, type_: str, unit: Unit | None = None, *, about: str | None = None) -> bool:
        """Returns whether a trigger of the app may wait for events of a type. Other processes learn within a second
        that one does; what was emitted in between is looked up then.

        unit: the open unit in which the event is told. Its connection is used if nothing is known of the app yet.
        about: what the event is about, where triggers name the beginning of it.
        """
        ...

    def may_wait_for(self, app_id: str, type_: str, *, about: str | None = None) -> bool:
        """Returns the same at once, by what this process knows: true where it knows nothing."""
        ...

    async def list_positions(self) -> Mapping[str, int]:
        """Returns, by app, the number of the last change of rows that was taken; only apps whose triggers wait for
        rows.
        """
        ...

    async def find_position(self, app: App) -> int | None:
        """Returns this number of one app; None if none of its triggers waits for rows."""
        ...

    async def take(
        self, app: App, occurrences: Sequence[Occurrence], *, position: tuple[int, int] | None = None, lost: int = 0
    ) -> None:
        """Writes a delivery for each trigger that an event fits, once, with the job that makes it.

        position: the numbers of the last change of rows that was taken before, and now. lost: how many changes before
        these were removed from the log before they could be taken; the triggers say so.
        Raises RetryLater while too many deliveries of the app wait, or while it is being moved.
        """
        ...
