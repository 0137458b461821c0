"""The context of a call: how it came in, and what its audit row will say."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from baobab.tools.core.errors import BaobabError
from baobab.tools.core.guard.steps import Step
from baobab.tools.core.limits.credits import Credits, Spender

Report = Callable[[float, float | None, str | None], Awaitable[None]]
"""Receives progress: the amount done, the total (None if unknown), and a message."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it came, for tools that pass it on. authorization: its credential, where that is valid.

    refusal: why a credential that it shows is not valid; None if it shows none, or a valid one.
    """

    query: str
    headers: tuple[tuple[str, str], ...]
    authorization: str | None
    refusal: BaobabError | None


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
    """The method of the HTTP request that makes this call; empty for MCP and agents."""
    profile: str = ""
    """The schema of a database that the request names, as clients of PostgREST do; empty where it names none."""
    streams: bool = False
    """Whether a result may be a Stream."""
    counts_lists: bool = False
    """Whether a list is counted as far as that is cheap, though the caller has not asked for its total."""
    wait_until_left: "Callable[[], Awaitable[None]] | None" = None
    """Returns when the client has left; None where a call is cancelled then, or nobody knows."""
    report: "Report | None" = None
    """Passes progress on to the client; None if there is no way to."""
    step: Step | None = None
    """The step of an agent's run that makes the call, if one does."""
    brings_outside_text: bool = False
    """Whether the arguments of a call that the server itself makes hold text of strangers."""
    trigger: Mapping[str, Any] | None = None
    """The trigger that makes the call: `id` and `name`, the `event_id`, and with its own how many triggers lie before
    what the call causes, as `depth`.
    """
    spender: Spender | None = None
    """The run that pays for the call, if an agent's run makes it."""
    credits: Credits | None = None
    """The credits that pay for an approved call, which no later attempt at it is charged with again; None for those
    that pay for every other call.
    """
    follow_text: "Callable[[str | None], None] | None" = None
    """Receives the text of a model's answer in pieces, as they arrive; None where an answer begins."""
    http: HttpRequest | None = None
    """The request itself, for tools that pass it on (`Rest.verbatim`); None for all others."""
    trace: str = ""
    """The span that the call belongs to, as its caller says: a W3C `traceparent`, unread; empty where there is none."""


@dataclass(slots=True)
class AuditNote:
    """The handler's own fields for the audit row. They never contain secrets or whole bodies."""

    resource_id: str | None = None
    organisation_id: str | None = None
    app_id: str | None = None
    """The app that the call created or concerned, for a tool without an `app_id`."""
    actor: str | None = None
    """The kind of actor, for calls that reveal it only as they run, such as a sign-in; with `actor_id`."""
    actor_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    nothing_done: bool = False
    """Set by a handler that had nothing to change: the call then has no audit row."""


class WouldDestroy(Exception):
    """Ends a call that would destroy or replace something, and whose caller must ask a person before that."""
