"""Durable jobs as domains see them: what is to be done is a row, written in the transaction of what asks for it.

A job is attempted until it ends, at least once, by any process of the installation. What it changes in the database
it changes through `Job.writing`, which only the latest attempt can: one that was frozen and wakes up writes nothing.
What it does elsewhere carries the job's id as idempotency key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.statements import Statements
from baobab.tools.core.errors import Unavailable
from baobab.tools.core.outages import STORE_OUTAGES

JOBS = "jobs"
"""The subject of announcements that other processes should look for due jobs."""
MOST_ATTEMPTS = 8
SUBSCRIBED = "subscribed"
"""What a job is done for that takes the events which triggers of an app wait for, of whatever type they are."""
OUTAGES = (*STORE_OUTAGES, Unavailable)
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
    origin: Mapping[str, Any] | None = None
    """Who caused it (tools/core/app_events.py); None if whoever emitted it does not know."""


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
        """Enqueues a job when the unit is committed, to run after `delay` seconds at the earliest. Returns the job's
        id.

        job_id: makes the job unique: while a job of this id exists, and for a day after its end, there is no other.
        tenant: the organisation that the job is for, if another than that of the present call or job.
        """
        ...

    def enqueue_in(self, statements: Statements, kind: str, arguments: Mapping[str, Any], job_id: str) -> None:
        """Does the same in a transaction of `Database.transact`. Call `wake` once it is committed."""
        ...

    async def withdraw(self, execute: Execute, job_id: str) -> bool:
        """Withdraws a job that has not begun, in a transaction of its database. Returns whether it will not run."""
        ...

    async def end_all(self, execute: Execute, kind: str, prefix: str) -> None:
        """Ends the jobs of a kind whose ids begin with `prefix`, in a transaction of their database; also those that
        were tried before. One that runs at this moment can write nothing any more.
        """
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
        origin: Mapping[str, Any] | None = None,
        only_awaited: bool = False,
    ) -> str | None:
        """Records an event in the unit and enqueues one job for each of its consumers. Returns the event's id.

        origin: who caused it (tools/core/app_events.py); None if that is not known. only_awaited: for what only
        triggers take: it is recorded if one of the app may wait for it, and else None is returned.
        """
        ...

    def emit_in(
        self,
        statements: Statements,
        type_: str,
        *,
        app_id: str,
        data: Mapping[str, Any],
        origin: Mapping[str, Any] | None = None,
    ) -> bool:
        """Records an event that only triggers take in a transaction of `Database.transact`, if one of the app may wait
        for it. Returns whether it was recorded: call `wake` once it is committed.
        """
        ...
