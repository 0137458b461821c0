"""Durable jobs as domains see them: what is to be done is a row, written in the transaction of what asks for it.

A job is attempted until it ends, at least once, by any process of the installation. What it changes in the database
it changes through `Job.writing`, which only the latest attempt can: one that was frozen and wakes up writes nothing.
What it does elsewhere carries the job's id as idempotency key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from baobab.storage.database import DatabaseUnavailable, Execute, Unit
from baobab.storage.kv.errors import SpaceFrozen, StoreUnavailable
from baobab.storage.objects.errors import StoreUnavailable as ObjectsUnavailable
from baobab.storage.statements import Statements
from baobab.tools.core.errors import Unavailable

MOST_ATTEMPTS = 8
OUTAGES = (DatabaseUnavailable, StoreUnavailable, SpaceFrozen, ObjectsUnavailable, Unavailable)
"""Errors that end by themselves. Other errors of a store would come again at each attempt."""


class JobLost(Exception):
    """Raised when another attempt has taken the job over; the writes of this one are rolled back."""


class RetryLater(Exception):
    """Raised by a job to be attempted again after some seconds, without counting as a failure."""

    def __init__(self, seconds: float, why: str = "") -> None:
        super().__init__(why)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Event:
    """An event, recorded in the transaction in which it happened."""

    id: str
    type: str
    at: datetime
    app_id: str | None
    data: Mapping[str, Any]


class Jobs(Protocol):
    """The port through which jobs are enqueued."""

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
        """The same in a transaction of `Database.transact`; `wake` when it is committed, which it announces."""
        ...

    async def withdraw(self, execute: Execute, job_id: str) -> bool:
        """Take a job back that nobody has begun, in a transaction of its database. Whether it will not be made."""
        ...

    def wake(self) -> None:
        """Wakes the job runner to look for due jobs now."""
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
