"""What surrounds a call: how it came in, and what its audit row will say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from baobab.tools.core.credits import Spender
from baobab.tools.core.steps import Step

Report = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told how much is done, of how much (None where nobody knows), and in words."""


@dataclass(slots=True)
class RequestContext:
    """How a call came in. `ip` is the client's address after trusted proxies; `base_url` is how it reached us."""

    name: str
    request_id: str
    ip: str = "local"
    user_agent: str = ""
    base_url: str = ""
    path: str = ""
    method: str = ""
    """Of the HTTP request that is this call; empty where a door has its calls in another form."""
    streams: bool = False
    """Whether a result may be a Stream."""
    report: "Report | None" = None
    """Passes progress on to whoever waits for the call, where the door has a way."""
    step: Step | None = None
    """Which step of a run the call is, where a run of an agent makes it."""
    spender: Spender | None = None
    """The run for which money is spent, where a run of an agent makes the call."""
    trace: str = ""
    """The span that the call belongs to, as its caller says: a W3C `traceparent`, unread; empty where there is none."""


@dataclass(slots=True)
class AuditNote:
    """What a handler adds to its audit row; never secrets, never whole bodies."""

    resource_id: str | None = None
    organisation_id: str | None = None
    app_id: str | None = None
    """The app that the call made or was about, where it does not name one."""
    actor: str | None = None
    """What the caller turned out to be, where that shows in the call (a sign-in); with `actor_id`."""
    actor_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    nothing_done: bool = False
    """Set by a handler that found everything as asked already: then there is nothing to write down."""


class WouldDestroy(Exception):
    """Ends a call that would destroy or replace something, and whose caller must ask a person before that."""
