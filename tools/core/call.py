"""A call: one use of a tool, with its caller, its door, its unit of work and the services it may use."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import CursorResult, Executable

from baobab.storage.database import Execute, Unit
from baobab.tools.core.auth.access import Role
from baobab.tools.core.auth.callers import Account, Caller
from baobab.tools.core.auth.directory import App
from baobab.tools.core.credits import Spender
from baobab.tools.core.effects import exceeds, needs_approval
from baobab.tools.core.errors import AppNotFound, Forbidden, Unavailable
from baobab.tools.core.limits import Allowance
from baobab.tools.core.services import Services, Stores
from baobab.tools.core.steps import Step

if TYPE_CHECKING:
    from baobab.tools.core.approvals import Approved
    from baobab.tools.core.registry import Registry
    from baobab.tools.core.tool import Tool

Report = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told how much is done, of how much (None where nobody knows), and in words."""


@dataclass(slots=True)
class Door:
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


class Call:
    __slots__ = (
        "_audit",
        "allowance",
        "app",
        "approved",
        "caller",
        "cost",
        "door",
        "effect",
        "headers",
        "nested",
        "registry",
        "role",
        "services",
        "tool",
        "unit",
    )

    def __init__(
        self, registry: "Registry", services: Services, tool: "Tool", caller: Caller, door: Door, unit: Unit
    ) -> None:
        self.registry = registry
        self.services = services
        self.tool = tool
        self.caller = caller
        self.door = door
        self.unit = unit
        self.app: App | None = None
        self.role: Role | None = None
        self.effect = tool.effect
        """What the call does: what its tool does, or destroy, where that depends on what it finds."""
        self.allowance: Allowance | None = None
        self.approved: Approved | None = None
        self.nested = False
        """Whether another call makes this one, in its own unit of work."""
        self.headers: list[tuple[bytes, bytes]] | None = None
        """What a door that has headers says beside the result."""
        self.cost = 0
        """What the call was charged, in nano-dollars, where that is known with its result."""
        self._audit: AuditNote | None = None

    @property
    def audit(self) -> AuditNote:
        """What the audit row will say of this call."""
        if self._audit is None:
            self._audit = AuditNote()
        return self._audit

    @property
    def asks_before_destroying(self) -> bool:
        """Whether a person must agree before this call destroys or replaces something."""
        limits = self.caller.limits
        asks = limits is not None and needs_approval("destructive", limits.approval)
        return asks and not self.nested and self.approved is None

    def destroys(self) -> None:
        """Say, before it is done, that the call destroys or replaces something that is there now.

        WouldDestroy where a person must agree to that first: the call then waits for them, and has changed nothing.
        """
        if self.tool.destructive_when is None:
            raise RuntimeError(f"{self.tool.name}: say with `destructive_when` in which case it destroys something")
        if self.asks_before_destroying:
            raise WouldDestroy

    def require_app(self) -> App:
        if self.app is None:
            raise AppNotFound
        return self.app

    @property
    def account(self) -> Account:
        if not isinstance(self.caller, Account):
            raise Forbidden("This operation needs the credential of an account.")
        return self.caller

    @property
    def stores(self) -> Stores:
        """The stores of the app's region."""
        region = self.require_app().region
        stores = self.services.regions.get(region)
        if stores is None:
            raise Unavailable(f"The app lives in the region `{region}`, which this installation does not serve.")
        return stores if self.approved is None else self.approved.guarded(region, stores)

    @property
    def now(self) -> datetime:
        return self.services.clock.now()

    async def execute(self, statement: Executable, rows: Any = None) -> CursorResult[Any]:
        """A statement in this call's transaction, which begins with the first one."""
        return await self.unit.execute(statement, rows)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Execute]:
        """What executes statements that only read, where the app's rows are.

        In this call's own transaction where it has begun one there: whoever holds a connection must not wait for
        another, or as many callers as there are connections would wait for each other.
        """
        database = self.stores.database
        if self.unit.database is database and not self.unit.untouched:
            yield self.unit.execute
            return
        async with database.reading() as connection:
            yield connection.execute

    async def enqueue(
        self, kind: str, arguments: Mapping[str, Any], *, job_id: str | None = None, delay: float = 0.0
    ) -> str:
        """Ask for a durable job when this call is committed; its id (tools/core/jobs.py)."""
        jobs = self.services.jobs
        return await jobs.enqueue(self.unit, kind, arguments, job_id=job_id, delay=delay, tenant=self._tenant)

    async def emit(self, type_: str, **data: Any) -> None:
        """Tell of an event of the app that this call is about, when it is committed."""
        app_id = self.app.id if self.app is not None else self.audit.app_id
        await self.services.jobs.emit(self.unit, type_, app_id=app_id, data=data, tenant=self._tenant)

    @property
    def _tenant(self) -> str | None:
        """The organisation of the app that the call is about: also where a stranger calls."""
        return self.app.organisation_id if self.app is not None else None

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell whoever waits how far the call is."""
        if self.door.report is not None:
            await self.door.report(done, total, message)

    async def invoke(self, name: str, **arguments: Any) -> Any:
        """Call another tool as the same caller, in the same unit of work; never one of a graver effect."""
        tool = self.registry.find(name)
        if exceeds(tool.effect, self.tool.effect):
            raise RuntimeError(f"{self.tool.name}: {name} has a graver effect than its caller says it has")
        run = self.registry.run(tool, arguments, self.caller, self.door, unit=self.unit, approved=self.approved)
        return (await run)[0]
