"""A tool, and a call of it with its caller, its request context, its unit of work and the services it may use.

The two know each other, and so do what guards a tool and a call: they stand in one file.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, TypeAdapter
from sqlalchemy import Executable

from baobab.storage.sql.database import Execute, Reader, Unit
from baobab.storage.sql.prepared_statements import Result
from baobab.tools.core.auth.callers import Account, Caller
from baobab.tools.core.auth.directory import App
from baobab.tools.core.auth.roles import Role
from baobab.tools.core.binding import Audit, Brief, Encoded, RegistrationError, RestBinding
from baobab.tools.core.context import AuditNote, RequestContext, WouldDestroy
from baobab.tools.core.effects import Effect, exceeds
from baobab.tools.core.envelopes import Envelope
from baobab.tools.core.errors import AppNotFound, BaobabError, Forbidden, UnknownField
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.core.guard.changes import Change
from baobab.tools.core.guard.read_text import ReadText
from baobab.tools.core.guard.widening import Widens
from baobab.tools.core.limits.credits import Credits
from baobab.tools.core.limits.rate_limits import Allowance
from baobab.tools.core.listing import Listing, Total, derive_listing
from baobab.tools.core.schema import find_unbounded, portable
from baobab.tools.core.services import Services
from baobab.tools.core.stores import Stores
from baobab.tools.core.types import DefaultBy
from baobab.tools.core.waiting import Waits

Handler = Callable[..., Awaitable[Any]]


# None: the call is not limited.
Spent = Allowance | None | Awaitable[Allowance]


class Access(Protocol):
    """Decides who may call a tool. anonymous: whether a caller without a credential can pass at all.

    credential: False where a credential is not even looked at, so that a stale one cannot fail a public read.
    """

    @property
    def anonymous(self) -> bool: ...

    @property
    def credential(self) -> bool: ...

    @property
    def description(self) -> str: ...

    @property
    def raises(self) -> tuple[type[BaobabError], ...]: ...

    def admits(self, caller: Caller) -> bool:
        """Returns whether a caller of this kind could pass. Lists of tools are filtered by this."""

    async def authorise(self, call: "Call", arguments: Mapping[str, Any]) -> None:
        """Raises Unauthenticated, Forbidden or NotFound; sets `call.role` if the caller has a role."""


class Limit(Protocol):
    """A rate limit. It is asked once per call, after authorisation and before validation."""

    def spend(self, call: "Call", arguments: Any) -> Spent: ...


class Family(Protocol):
    """The part of its toolset that a tool knows (tools/core/toolset.py)."""

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

    @property
    def refusal_headers(self) -> Callable[[Services, str], Mapping[str, str]] | None: ...


@dataclass(frozen=True, slots=True)
class GraphName:
    """A name by which graphs of agents use a tool.

    arguments: the graph's names of arguments, by the tool's names. for_users: whether runs of the app's users, who may
    use the tool, may use it by this name.
    """

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    for_users: bool = True


@dataclass(frozen=True)
class Tool:
    """One capability. Its schemas and the codec of its results are built at first use, or by `prepare` in the
    background: a start must not wait for the descriptions of two hundred tools.
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
    start: bool | Literal["narrow"]
    grants: bool
    widens: Mapping[str, Widens]
    spends: frozenset[str]
    destructive_when: str | None
    long_running: bool
    preview: Handler | None
    meaning: Handler | None
    outcome: Callable[[Mapping[str, Any]], str | None] | None
    as_app: AsApp | None
    consequence: str | None
    undone_by: str | None
    overwrites: bool
    failure: Callable[[Any], BaobabError | None] | None
    mcp: bool
    for_linked_apps: bool
    taints: bool
    graph_names: Sequence["GraphName"]
    mcp_headers: Mapping[str, str]
    mcp_defaults: Mapping[str, Any]
    brief: Brief | None
    declared_listing: Listing | None
    waits: Waits | None

    @cached_property
    def listing(self) -> Listing | None:
        """How its results hold a list; None if they are more than a list, or none."""
        return self.declared_listing or derive_listing(self.effect, self.output_schema)

    @cached_property
    def version(self) -> str:
        """A digest of what a call of this tool means. An approval is valid for one version only."""
        meaning = [self.name, self.effect, self.destructive_when, self.description, self.input_schema]
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments. Raises RegistrationError for a string or list without a maximum."""
        schema = portable(self.arguments.model_json_schema())
        for path in find_unbounded(schema):
            raise RegistrationError(f"{self.name}: {path} has no bound; give its type a maximum")
        return schema

    @cached_property
    def other_defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """The defaults of arguments that are others than the signature's, by the interface and the argument."""
        by_interface: dict[str, dict[str, Any]] = {}
        for name, info in self.arguments.model_fields.items():
            for each in info.metadata:
                if isinstance(each, DefaultBy):
                    for interface, value in each.values.items():
                        by_interface.setdefault(interface, {})[info.alias or name] = value
        return by_interface

    def complete(self, arguments: Mapping[str, Any], interface: str) -> Mapping[str, Any]:
        """Returns the arguments of a call with the defaults of the interface that it comes in through."""
        defaults = self.other_defaults.get(interface)
        if not defaults:
            return arguments
        return {**arguments, **{name: value for name, value in defaults.items() if arguments.get(name) is None}}

    def build_input_schema(self, interface: str) -> dict[str, Any]:
        """Returns the JSON Schema of the arguments with the defaults of an interface."""
        defaults = self.other_defaults.get(interface)
        if not defaults:
            return self.input_schema
        properties = self.input_schema["properties"]
        others = {name: {**properties[name], "default": value} for name, value in defaults.items()}
        return {**self.input_schema, "properties": {**properties, **others}}

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the result; None for a tool without a result."""
        return None if self.returns is type(None) else portable(self.codec.json_schema(mode="serialization"))

    @cached_property
    def codec(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.returns)

    def prepare(self) -> None:
        """Builds what the first call or the first list would otherwise build.

        Not the schema of the result: most clients are shown none, and it is half of the work.
        """
        self.arguments.model_rebuild()
        _ = self.input_schema, self.codec

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the handler's keyword arguments. Raises pydantic's ValidationError or a domain's own error."""
        model: BaseModel = self.arguments.__pydantic_validator__.validate_python(arguments)
        further = model.__pydantic_extra__
        if further and "call" in further:
            # `call` is the handler's first parameter; a field of that name would collide with it.
            raise UnknownField("`call` is not a field of this operation.")
        return model.__dict__ | further if further else model.__dict__

    @cached_property
    def argument_names(self) -> tuple[frozenset[str], frozenset[str] | None]:
        """The names of required arguments, and of all known ones; None if the tool takes any further argument."""
        fields = {info.alias or name: info for name, info in self.arguments.model_fields.items()}
        required_names = frozenset(name for name, info in fields.items() if info.is_required())
        return required_names, None if self.arguments.model_config.get("extra") == "allow" else frozenset(fields)

    def names_fit(self, arguments: Mapping[str, Any]) -> bool:
        """Returns whether no required argument is missing and none unknown. An `app_id` of null counts as missing."""
        required_names, allowed_names = self.argument_names
        keys = arguments.keys()
        names_app = self.app_parameter is None or arguments.get(self.app_parameter) is not None
        return names_app and required_names <= keys and (allowed_names is None or keys <= allowed_names)

    def decode(self, text: str) -> Any:
        """Decodes a result from its JSON text."""
        return self.codec.validate_json(text)

    def encode(self, result: Any) -> bytes:
        """Encodes a result as JSON text."""
        return result if isinstance(result, Encoded) else self.codec.dump_json(result, by_alias=True)


class ToolRunner(Protocol):
    """The part of the registry that calls and jobs use (tools/core/registry.py)."""

    tools: dict[str, "Tool"]
    toolsets: tuple[Any, ...]
    jobs: dict[str, Any]
    """The kinds of jobs by their names: `JobKind`, which knows this class."""
    app_events: dict[str, Any]
    """What triggers can wait for, by name: `AppEvent`, which knows this class."""

    @property
    def services(self) -> Services: ...

    def find_for_graphs(self, name: str) -> "tuple[Tool, GraphName] | None":
        """Returns the tool that a graph means by a name, which may be a name that only graphs use; else None."""
        ...

    def find(self, name: str) -> "Tool":
        """Returns the tool with this name. Raises ToolNotFound."""
        ...

    def may_call(self, name: str, caller: Caller, role: Role | None) -> bool:
        """Returns whether a tool may be open to a caller whose account has this role in the organisation concerned."""
        ...

    async def run(
        self,
        tool: "Tool",
        arguments: Mapping[str, Any],
        caller: Caller,
        context: RequestContext,
        *,
        unit: Unit | None = None,
        approved_attempt: "ApprovedAttempt | None" = None,
    ) -> tuple[Any, "Call"]:
        """Calls a tool and returns its result with the record of the call."""
        ...

    async def preview(
        self, tool: "Tool", arguments: Mapping[str, Any], caller: Caller, context: RequestContext, unit: Unit
    ) -> "Preview":
        """Returns what a call would do now, and changes nothing."""
        ...


class Preview(NamedTuple):
    """The effect of a call now, found out without changing anything. Each field is None if it is unknown."""

    text: str | None = None
    """In plain words."""
    changes: list[Change] | None = None
    """What is there before and what would be there after. Only those who may read all of the app are shown it."""
    answer: Any = None
    """What the call answers, if it would change nothing. A person is not asked about such a call."""
    label: str | None = None
    """What people call the row that the call is about, read with the caller's right."""
    warnings: Sequence[str] = ()
    """What the call would warn of; `Call.warn` adds to it."""
    is_undoable: bool | None = None
    """Whether the tool that undoes such calls could undo this one, if trying the call has shown it."""


class ApprovedAttempt(Protocol):
    """One attempt at an approved call. `id` is the idempotency key of all its outside effects."""

    id: str
    run_id: str | None
    meaning: str | None
    """A digest of what the arguments name, taken when the call was proposed."""
    app_id: str | None
    """The app that the call names, or else the one whose agent proposed it."""
    tainted: bool
    """Whether the run that proposed it had read text from outside."""
    starter: str
    """Who started that run, as deciders.py names people; empty for the call of a key."""
    right: Mapping[str, Any] | None
    """Of a call that uses the app's right: by which agent's node, for whom and by whom, as the audit log shows it."""

    def stores_for_attempt(self, region: str, stores: Stores) -> Stores:
        """Returns the stores of a region, so wrapped that a later attempt does not repeat an earlier one's writes."""
        ...

    async def finish(self, call: "Call", result: Any) -> None:
        """Marks the call as executed, in the transaction of its effects. Raises JobLost if another took over."""
        ...


class Call:
    __slots__ = (
        "_audit",
        "action_id",
        "allowance",
        "app",
        "approved_attempt",
        "caller",
        "context",
        "cost",
        "effect",
        "headers",
        "is_nested",
        "is_preview",
        "is_undoable",
        "registry",
        "role",
        "services",
        "texts",
        "tool",
        "total",
        "unit",
        "wait_seconds",
        "warnings",
    )

    def __init__(
        self, registry: ToolRunner, services: Services, tool: Tool, caller: Caller, context: RequestContext, unit: Unit
    ) -> None:
        self.registry = registry
        self.services = services
        self.tool = tool
        self.caller = caller
        self.context = context
        self.unit = unit
        self.app: App | None = None
        self.role: Role | None = None
        self.effect = tool.effect
        """The effect of the tool; `destructive` once the call turned out to destroy or replace something."""
        self.allowance: Allowance | None = None
        self.approved_attempt: ApprovedAttempt | None = None
        self.texts: list[ReadText] | None = None
        """The texts that the call has read; None if its tool does not say which."""
        self.is_nested = False
        """Whether another call invoked this one, in the same unit of work."""
        self.is_preview = False
        """Whether it only finds out what a call would do: the preview of its tool is called with it."""
        self.is_undoable: bool | None = None
        """Of a preview: whether its tool has found that the call could be undone; None where it did not try."""
        self.headers: list[tuple[bytes, bytes]] | None = None
        """Headers that accompany the result over REST."""
        self.warnings: list[str] | None = None
        """What the caller should know about the result although the call succeeded; `warn` adds to it."""
        self.action_id: str | None = None
        """The id of the write of rows that the call has made, by which it can be undone."""
        self.total: Total | None = None
        """How many entries the list has of which the result is a part; `count_list` sets it."""
        self.wait_seconds = 0
        """How long the call waits for the end of the work that it starts or reads, after its transaction."""
        self.cost: int | None = None
        """The charge for the call in nano-dollars, if it is known together with the result."""
        self._audit: AuditNote | None = None

    @property
    def audit(self) -> AuditNote:
        """The handler's own fields for the audit row of this call."""
        if self._audit is None:
            self._audit = AuditNote()
        return self._audit

    @property
    def noted_organisation_id(self) -> str | None:
        """The organisation that the handler has named for the audit row; None if it named none."""
        return None if self._audit is None else self._audit.organisation_id

    @property
    def approval_id(self) -> str | None:
        """The id of the approval that this call executes; None if nobody had to approve it."""
        return None if self.approved_attempt is None else self.approved_attempt.id

    @property
    def app_right(self) -> Mapping[str, Any] | None:
        """Says by what this call uses the app's right; None if it uses its caller's."""
        return None if self.approved_attempt is None else self.approved_attempt.right

    @property
    def waits_for_approval(self) -> bool:
        """Whether a person must agree before the call is made."""
        if self.context.step is not None and self.context.step.requires_approval:
            return True
        limits = self.caller.limits
        # A public tool ignores credentials, so the limits of one cannot matter.
        asks = limits is not None and limits.requires_approval(self.tool.name, self.tool.effect)
        return asks and self.tool.access.credential

    @property
    def need_not_ask_any_more(self) -> bool:
        """Whether the key has a rule that lets it make this call without asking, and may have asked before."""
        limits = self.caller.limits
        return limits is not None and self.tool.name in limits.never_ask and self.context.step is None

    @property
    def needs_destroy_approval(self) -> bool:
        """Whether a person must agree before this call destroys or replaces something."""
        limits = self.caller.limits
        asks = limits is not None and limits.requires_approval(self.tool.name, "destructive")
        return asks and not self.is_nested and not self.is_preview and self.approved_attempt is None

    def warn(self, *texts: str) -> None:
        """Adds warnings to the result, such as what was left out. Each interface shows them in its own way: REST in the
        header X-Baobab-Warnings, MCP beside the result, agents to their model.
        """
        if texts:
            self.warnings = list(dict.fromkeys([*(self.warnings or ()), *texts]))

    def count_list(self, count: int, *, is_exact: bool = True) -> None:
        """Says how many entries the list has in all of which the result holds a part; or at least how many."""
        self.total = Total(count, is_exact)

    def declare_destructive(self) -> None:
        """Declares, before doing it, that the call destroys or replaces something that exists now.

        Raises WouldDestroy if a person must agree first; the call then waits for them and has changed nothing.
        """
        if self.tool.destructive_when is None:
            raise RuntimeError(f"{self.tool.name}: say with `destructive_when` in which case it destroys something")
        if self.needs_destroy_approval:
            raise WouldDestroy

    def note_texts(self, *texts: ReadText) -> None:
        """Says which texts the call has read, and whose they are. A result without any text notes none."""
        self.texts = [*(self.texts or ()), *texts]

    @property
    def has_read_outside(self) -> bool:
        """Whether the result may hold text from outside: where the tool does not say what it read, it may."""
        return self.tool.taints and (self.texts is None or not all(text.is_own for text in self.texts))

    def require_app(self) -> App:
        """Returns the app that the call works in. Raises AppNotFound if it names none."""
        if self.app is None:
            raise AppNotFound
        return self.app

    @property
    def account(self) -> Account:
        """The account that calls. Raises Forbidden for any other caller."""
        if not isinstance(self.caller, Account):
            raise Forbidden(f"{self.tool.name} needs the credential of an account.")
        return self.caller

    @property
    def credits(self) -> Credits:
        """The credits that pay for this call: of an approved one, they charge once for all attempts at it."""
        return self.context.credits or self.services.credits

    @property
    def stores(self) -> Stores:
        """The stores of the app's region."""
        region = self.require_app().region
        stores = self.services.stores_of(region)
        return stores if self.approved_attempt is None else self.approved_attempt.stores_for_attempt(region, stores)

    @property
    def now(self) -> datetime:
        """The present, in UTC."""
        return self.services.clock.now()

    async def execute(self, statement: Executable, values: Any = None) -> Result:
        """Executes a statement in this call's transaction, which begins with the first statement."""
        return await self.unit.execute(statement, values)

    async def hold(self, tenant: str) -> None:
        """Holds the lock of another organisation, account or app until the end of this call's transaction.

        The registry holds that of the call's app, else of the caller's organisation. What is counted or decided for
        another tenant must be read after this.
        """
        await self.unit.hold(tenant)

    async def read(self, statement: Executable, values: Any = None) -> Result:
        """Executes one statement where `reading` would, which costs less if it is the only one there."""
        database = self.unit.database if self.app is None else self.stores.database
        if self.unit.database is database and not self.unit.is_untouched:
            return await self.unit.execute(statement, values)
        return await database.execute(statement, values)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Execute]:
        """Yields a function that executes read-only statements where `open_reader` would."""
        async with self.open_reader() as reader:
            yield reader.execute

    @asynccontextmanager
    async def open_reader(self) -> AsyncIterator[Reader]:
        """Yields what runs read-only statements in the database of the app's region; without an app, in that of the
        call's own transaction.

        In this call's own transaction where it has begun one there: whoever holds a connection must not wait for
        another, or as many callers as there are connections would wait for each other.
        """
        database = self.unit.database if self.app is None else self.stores.database
        if self.unit.database is database and not self.unit.is_untouched:
            yield self.unit
            return
        async with database.reading() as connection:
            yield connection

    @asynccontextmanager
    async def reading_apart(self) -> "AsyncIterator[Call]":
        """Yields a call of the same caller that only reads, in a transaction of its own which ends with the block.

        For what takes long and must not happen while this call holds a lock. This call must not have read anything.
        """
        unit = self.services.database.build_unit(write=False)
        call = Call(self.registry, self.services, self.tool, self.caller, self.context, unit)
        call.app, call.role = self.app, self.role
        try:
            yield call
        except BaseException as exc:
            await unit.rollback(exc)
            raise
        await unit.commit()

    async def enqueue(
        self, kind: str, arguments: Mapping[str, Any], *, job_id: str | None = None, delay: float = 0.0
    ) -> str:
        """Enqueues a durable job when this call commits, and returns the job's id (tools/core/jobs.py)."""
        jobs = self.services.jobs
        return await jobs.enqueue(self.unit, kind, arguments, job_id=job_id, delay=delay, tenant=self._tenant)

    async def emit(self, type_: str, **data: Any) -> None:
        """Emits an event of the call's app when this call commits."""
        app_id = self.app.id if self.app is not None else self.audit.app_id
        await self.services.jobs.emit(self.unit, type_, app_id=app_id, data=data, tenant=self._tenant)

    @property
    def _tenant(self) -> str | None:
        """The organisation of the call's app, also for callers of other organisations; None without an app."""
        return self.app.organisation_id if self.app is not None else None

    async def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Reports progress to the client, if it asked for progress."""
        if self.context.report is not None:
            await self.context.report(current, total, message)

    async def invoke(self, name: str, **arguments: Any) -> Any:
        """Calls another tool as the same caller in the same unit of work. Its effect must not be graver."""
        tool = self.registry.find(name)
        if exceeds(tool.effect, self.tool.effect):
            raise RuntimeError(f"{self.tool.name}: {name} has a graver effect than its caller says it has")
        run = self.registry.run(
            tool, arguments, self.caller, self.context, unit=self.unit, approved_attempt=self.approved_attempt
        )
        result, invoked_call = await run
        if invoked_call.warnings is not None:
            self.warn(*invoked_call.warnings)
        return result
