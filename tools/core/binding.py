"""How a tool is declared: its REST route, and how its calls are audited."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class RegistrationError(Exception):
    """A tool is not declared as it must be. Raised at import, never at run time."""


class Encoded(bytes):
    """A result that is JSON text already, so that interfaces pass it on without encoding it."""


@dataclass(frozen=True, slots=True)
class RestBinding:
    """The REST route of a tool."""

    method: str
    path: str
    status: int | Callable[[Any], int]
    statuses: tuple[int, ...]
    path_parameters: tuple[str, ...]
    query_parameters: tuple[str, ...]
    body_parameters: tuple[str, ...]
    media_type: str
    max_body: int
    headers: Mapping[str, str]
    from_headers: Mapping[str, str] = field(default_factory=dict)
    """Parameters that a header of the request gives where the query does not, with its name in lower case."""
    form: bool = False
    """Whether browsers come here from other sites: with a form for a body, or unknown parameters in the query."""
    socket: bool = False
    """Whether it is a WebSocket, of which each piece of the result, a Stream, is a frame."""
    credential: str | None = None
    """The query parameter that may hold the caller's credential, for browsers, which send no header here."""
    apart: bool = False
    """Whether it is served from the host of the app's files, where there is one."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """By a method that its path does not take, what a caller should do who tries it."""
    instead_of_query: str = ""
    """What a caller should do who sends a query parameter that the tool does not have."""
    alone: str | None = None
    """The only field of the result, which is the whole body of the answer where the query string says `raw=1`."""
    further_names: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    """Further names of fields in bodies and answers: the field, or an object's fields by their names in the object."""
    repeats: frozenset[str] = frozenset()
    """Parameters of the path that the body may name too. The body's counts where the path says `_`."""
    raw_body: str | None = None
    """The parameter that gets the body as its bytes arrive, a `Body` (tools/core/stream.py)."""
    whole_body: str | None = None
    """The parameter that is the body, instead of a field of it."""
    further_query: str | None = None
    """The parameter that gets all parameters of the query string that are not known, by name."""
    also: tuple[str, ...] = ()
    """Further paths of the same parameters, which no document names: some clients write a part of a path themselves."""


@dataclass(frozen=True, slots=True)
class Audit:
    """How a call is written into the audit log; the defaults are derived from the tool."""

    event: str
    category: str = "admin"
    action: str = "update"
    resource: str | None = None
    failure_event: str | None = None
    """The event of a call that its handler refused; left out, the event with `_failed` behind it."""
    tallied: bool = False
    """Count the calls of a minute in one row instead of writing a row for each: for data, not for control."""
