"""A tool: one capability, read from one function into one frozen record."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from pydantic import BaseModel, TypeAdapter

from baobab.tools.core.auth.access import Access
from baobab.tools.core.effects import Effect
from baobab.tools.core.envelopes import Envelope
from baobab.tools.core.errors import BaobabError, UnknownField
from baobab.tools.core.limits import Limit
from baobab.tools.core.schema import portable, unbounded
from baobab.tools.core.widening import Widens

Handler = Callable[..., Awaitable[Any]]


class RegistrationError(Exception):
    """A tool is not declared as it must be. Raised at import, never at run time."""


class Encoded(bytes):
    """A result that is JSON text already: doors pass it on instead of encoding it anew."""


@dataclass(frozen=True, slots=True)
class RestBinding:
    """Where a tool stands in the REST door."""

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
    socket: bool = False
    """Whether it is a WebSocket, of which each piece of the result, a Stream, is a frame."""
    repeats: frozenset[str] = frozenset()
    """Parameters of the path that the body may name too. The body's counts where the path says `_`."""
    also: tuple[str, ...] = ()
    """Further paths of the same parameters, which no document names: some clients write a part of a path themselves."""


@dataclass(frozen=True, slots=True)
class Audit:
    """How a call is written into the audit log; the defaults are derived from the tool."""

    event: str
    category: str = "admin"
    action: str = "update"
    resource: str | None = None
    failed: str | None = None
    """The event of a call that its handler refused; left out, the event with `_failed` behind it."""
    tallied: bool = False
    """Count the calls of a minute in one row instead of writing a row for each: for data, not for control."""


class Family(Protocol):
    """What a tool knows of the toolset that it belongs to (tools/core/toolset.py)."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def envelope(self) -> Envelope: ...

    @property
    def keeps_failures(self) -> str | None: ...

    @property
    def key_header(self) -> str | None: ...


@dataclass(frozen=True)
class Tool:
    """One capability. What is costly to make (schemas, the codec of results) is made when first asked for, or by
    `prepare` in the background: a start must not wait for the descriptions of two hundred tools.
    """

    name: str
    toolset: "Family"
    title: str
    summary: str
    description: str
    effect: Effect
    access: Access
    limit: Limit | None
    raises: tuple[type[BaobabError], ...]
    audit: Audit | None
    rest: RestBinding | None
    handler: Handler
    arguments: type[BaseModel]
    returns: Any
    app_parameter: str | None
    examples: Mapping[str, Any]
    start: bool
    grants: bool
    widens: Mapping[str, Widens]
    destructive_when: str | None
    long_running: bool
    preview: Handler | None
    meaning: Handler | None
    failure: Callable[[Any], BaobabError | None] | None
    mcp: bool
    taints: bool
    keywords: str

    @cached_property
    def version(self) -> str:
        """Changes when what a call means may have changed: an approval is good for one version."""
        meaning = [self.name, self.effect, self.destructive_when, self.description, self.input_schema]
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments; RegistrationError where a text or a list has no bound."""
        schema = portable(self.arguments.model_json_schema())
        for path in unbounded(schema):
            raise RegistrationError(f"{self.name}: {path} has no bound; give its type a maximum")
        return schema

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the result; None where there is none."""
        return None if self.returns is type(None) else portable(self.codec.json_schema(mode="serialization"))

    @cached_property
    def codec(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.returns)

    def prepare(self) -> None:
        """Make everything that the first call or the first list would otherwise make."""
        self.arguments.model_rebuild()
        _ = self.input_schema, self.output_schema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The handler's keyword arguments; pydantic's ValidationError or a domain's own error."""
        validated: BaseModel = self.arguments.__pydantic_validator__.validate_python(arguments)
        further = validated.__pydantic_extra__
        if further and "call" in further:
            # The handler's own first parameter.
            raise UnknownField("`call` is not a field of this operation.")
        return validated.__dict__ | further if further else validated.__dict__

    @cached_property
    def _names(self) -> tuple[frozenset[str], frozenset[str] | None]:
        """The arguments that a call must name, and all that it may; None where it may name any."""
        fields = {info.alias or name: info for name, info in self.arguments.model_fields.items()}
        required = frozenset(name for name, info in fields.items() if info.is_required())
        return required, None if self.arguments.model_config.get("extra") == "allow" else frozenset(fields)

    def names_fit(self, arguments: Mapping[str, Any]) -> bool:
        """Whether all required arguments are named, and none that is unknown; an app that is null is not named."""
        required, known = self._names
        keys = arguments.keys()
        named = self.app_parameter is None or arguments.get(self.app_parameter) is not None
        return named and required <= keys and (known is None or keys <= known)

    def decode(self, text: str) -> Any:
        """A result from its JSON text."""
        return self.codec.validate_json(text)

    def encode(self, result: Any) -> bytes:
        """The JSON text of a result."""
        return result if isinstance(result, Encoded) else self.codec.dump_json(result, by_alias=True)
