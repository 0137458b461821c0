"""How a tool is declared: its REST route, and how its calls are audited."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class RegistrationError(Exception):
    """A tool is not declared as it must be. Raised at import, never at run time."""


class Encoded(bytes):
    """A result that is JSON text already, so that interfaces pass it on without encoding it."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What models are not sent of a result, because they have just said it or seldom need it.

    of: the member of the result that holds the object, or the list of objects. leaves_out: the members of these that
    are left out. note: what the answer says about it, such as which tool reads the whole.
    """

    of: str
    leaves_out: frozenset[str]
    note: str

    def shorten(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """Returns a result without what models are not sent; None if that leaves nothing out."""
        whole: Any = answer.get(self.of)
        objects: list[Any] = whole if isinstance(whole, list) else [whole]
        if not any(isinstance(each, dict) and self.leaves_out & each.keys() for each in objects):
            return None
        short_objects = [{name: each[name] for name in each if name not in self.leaves_out} for each in objects]
        return {**answer, self.of: short_objects if isinstance(whole, list) else short_objects[0]}

    def describe(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the schemas of a result's members as they are with what `shorten` leaves."""
        schema = properties[self.of]
        inner = schema.get("items", schema)
        members = {name: each for name, each in inner["properties"].items() if name not in self.leaves_out}
        short_object = {**inner, "properties": members}
        short_schema = {**schema, "items": short_object} if "items" in schema else short_object
        return {SHORTENED: {"type": "string"}, **properties, self.of: short_schema}


SHORTENED = "shortened"
"""The member of an answer that has the note of a `Brief`."""


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
    off_platform: bool = False
    """Whether it is never served from the platform's own host."""
    site: bool = False
    """Whether it is a page of an app's site, which only the app's own host answers."""
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
    verbatim: bool = False
    """Whether the handler reads the query string and the headers itself."""
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
