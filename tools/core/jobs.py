"""Durable jobs as domains see them: what is to be done is a row, written in the transaction of what asks for it.

A job is attempted until it ends, at least once, by any process of the installation. What it changes in the database
it changes through `Job.writing`, which only the latest attempt can: one that was frozen and wakes up writes nothing.
What it does elsewhere carries the job's id as idempotency key.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from baobab.storage.database import Database, DatabaseUnavailable, Execute, Unit
from baobab.storage.kv.errors import SpaceFrozen, StoreUnavailable
from baobab.storage.objects.errors import StoreUnavailable as ObjectsUnavailable
from baobab.storage.transactions import Statements
from baobab.tools.core.errors import Unavailable

if TYPE_CHECKING:
    from baobab.tools.core.registry import Registry

MOST_ATTEMPTS = 8
OUTAGES = (DatabaseUnavailable, StoreUnavailable, SpaceFrozen, ObjectsUnavailable, Unavailable)
"""What ends by itself, and is nobody's fault. Other refusals of a store would come again and again."""


class JobLost(Exception):
    """Another attempt has taken the job over; what this one was about to write is undone."""


class Again(Exception):
    """Raised by a job that found no fault and is to be attempted once more, so many seconds from now."""

    def __init__(self, seconds: float, why: str = "") -> None:
        super().__init__(why)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened, written down in the transaction in which it happened."""

    id: str
    type: str
    at: datetime
    app_id: str | None
    data: Mapping[str, Any]


class Job(Protocol):
    """One attempt."""

    id: str
    """The same in every attempt."""
    attempt: int
    registry: "Registry"
    database: Database
    """That of the transaction which asked for the job."""

    async def hold(self, unit: Unit, *, last: bool = False) -> None:
        """In a unit of the caller's own: what `writing` begins with."""
        ...

    def keep(self, statements: Statements, *, last: bool = False, further: bool = False) -> None:
        """The same as `hold` in a transaction of `storage.transactions`; after one that was the last, say `ended`.

        further: the job gets further than ever before with it: attempts are counted from here on.
        """
        ...

    def end(self) -> None:
        """The transaction that ended the job is committed."""
        ...

    def writing(self, *, last: bool = False) -> AbstractAsyncContextManager[Unit]:
        """A transaction that this attempt may still make; JobLost where it may not.

        last: the job ends in the same transaction, so that what is written here is written once.
        """
        ...


Work = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job, as a domain declares it: `async def (job, **arguments)`, or `(job, event)` for a consumer."""

    name: str
    work: Work = field(repr=False)
    attempts: int = MOST_ATTEMPTS
    every: float | None = None
    """Seconds from one round to the next, of which one process of all makes each; such a job takes no arguments."""
    consumes: str | None = None
    """The type of event that it is done for."""
    delay: float = 0.0
    at_once: int | None = None
    """How many of them one process makes at the same time at most, beside those that wait for the network.

    One organisation has one less, so that another need not wait for it."""
    approved: bool = False
    """Whether it does what a person has approved: such jobs have slots of their own."""


class Jobs(Protocol):
    """Where jobs are asked for."""

    async def enqueue(
        self,
        unit: Unit,
        kind: str,
        arguments: Mapping[str, Any],
        *,
        job_id: str | None = None,
        delay: float = 0.0,
        tenant: str | None = None,
    ) -> str:
        """Ask for a job when the unit is committed, `delay` seconds later at the earliest; its id.

        job_id: at most one job of this id is ever made while it is remembered, which is a day after its end.
        tenant: the organisation that it is for, where that is another than the present call or job is for.
        """
        ...

    def enqueue_in(self, statements: Statements, kind: str, arguments: Mapping[str, Any], job_id: str) -> None:
        """The same in a transaction of `storage.transactions`; `wake` when it is committed, which it announces."""
        ...

    async def withdraw(self, execute: Execute, job_id: str) -> bool:
        """Take a job back that nobody has begun, in a transaction of its database. Whether it will not be made."""
        ...

    def wake(self) -> None:
        """Look for something to do now."""
        ...

    async def emit(
        self,
        unit: Unit,
        type_: str,
        *,
        app_id: str | None = None,
        data: Mapping[str, Any] | None = None,
        tenant: str | None = None,
    ) -> str:
        """Write down an event in the unit, and ask for one job for each of its consumers; the event's id."""
        ...
