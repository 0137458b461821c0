"""The executor: runs approved calls, each exactly once, on any worker and however often a worker is killed.

Each execution is a durable job. The row becomes `executed` in the transaction of the call's own effects, and only while
this attempt holds the job, so one of several attempts counts. A key-value store keeps the results of what a call did
there, and a later attempt does not repeat it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import select, update

from baobab.storage.clock import Clock
from baobab.storage.database import Database, Unit
from baobab.tools.approvals.acting import describe_right, restore_acting_caller
from baobab.tools.approvals.carrying_over import require_makeable
from baobab.tools.approvals.errors import Unfinished
from baobab.tools.approvals.tables import NOTICE, FieldCipher, approvals
from baobab.tools.core.auth.proposers import CallerUnreadable
from baobab.tools.core.call import Call
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import AppMigrating, BaobabError, Internal, Unavailable
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import Jobs, RetryLater
from baobab.tools.core.steps import ENDED
from baobab.tools.core.stores import Stores

JOB = "approvals_execute"
MOST_ATTEMPTS = 10
"""After so many attempts that ended with their server, the call itself is taken for the reason."""
# Shorter than a store keeps the results of an attempt (storage/kv/idempotency.py).
GOOD_FOR = timedelta(days=1)
_PATIENCE = timedelta(minutes=2)
_PAUSE_SECONDS = 5.0


@dataclass(slots=True)
class ApprovedCall:
    """One attempt at an approved call. `id` is also the idempotency key of every effect outside of our own stores."""

    id: str
    job: Job
    seals: FieldCipher
    run_id: str | None = None
    meaning: str | None = None
    """The digest of what the arguments refer to, from when the call was proposed."""
    app_id: str | None = None
    """The app that the call names, or else the one whose agent proposed it."""
    tainted: bool = False
    starter: str = ""
    """Whether the run that proposed it had read text from outside."""
    right: Mapping[str, Any] | None = None
    """Whose right it uses, if that is the app's (acting.py)."""
    _stores: dict[str, Stores] = field(default_factory=dict)

    def stores_for_attempt(self, region: str, stores: Stores) -> Stores:
        """Returns the stores of a region, in which a later attempt does not repeat what an earlier one did."""
        if region not in self._stores:
            self._stores[region] = replace(stores, kv=stores.kv.for_attempt(self.id))
        return self._stores[region]

    async def finish(self, call: Call, result: Any) -> None:
        """Marks the call as executed, in the transaction of its effects. Raises JobLost if another took over."""
        result_json = "null" if result is None else call.tool.encode(result).decode()
        values = {
            "status": "executed",
            "finished_at": call.now,
            "result": self.seals.seal(self.id, "result", result_json),
            **self.seals.without_arguments(self.id),
        }
        # Locks the approval before its job, in the order of a withdrawal, so that the two cannot deadlock.
        await call.execute(update(approvals).where(approvals.c.id == self.id).values(**values))
        await self.job.hold(call.unit, last=True)
        organisation = select(approvals.c.organisation_id).where(approvals.c.id == self.id)
        await call.services.notices.publish(call.unit, NOTICE, str((await call.execute(organisation)).scalar()))
        if self.run_id is not None:
            event = {"approval_id": self.id, "run_id": self.run_id}
            await call.services.jobs.emit(call.unit, ENDED, app_id=self.app_id, data=event)


def render_refusal(error: BaobabError) -> dict[str, Any]:
    """Renders the error that an approval keeps."""
    return {
        "code": error.code,
        "message": error.message,
        "remediation": error.remedy,
        # Details may hold values that a JSON column does not take, such as datetimes.
        "details": from_json(to_json(error.details)),
    }


def job_id_of(approval_id: str) -> str:
    """Returns the id of the job that executes an approved call."""
    return f"approval:{approval_id}"


async def enqueue_execution(jobs: Jobs, unit: Unit, approval_id: str, organisation_id: str) -> None:
    """Enqueues the execution of an approved call; it begins when the decision is committed."""
    arguments = {"approval_id": approval_id}
    await jobs.enqueue(unit, JOB, arguments, job_id=job_id_of(approval_id), tenant=organisation_id)


class Executor:
    def __init__(self, database: Database, clock: Clock, seals: FieldCipher, base_url: str) -> None:
        self._database = database
        self._clock = clock
        self._seals = seals
        self._base_url = base_url

    async def execute(self, job: Job, approval_id: str) -> None:
        """Makes one attempt. Raises JobLost if another has taken over, RetryLater if a later one may succeed."""
        conditions = (approvals.c.id == approval_id, approvals.c.status == "approved")
        async with self._database.reading() as connection:
            row = (await connection.execute(select(approvals).where(*conditions))).first()
        if row is None:
            return
        try:
            await self._attempt(job, row)
        except CallerUnreadable as error:
            # A server of the version that stored it may make the call.
            raise RetryLater(_PAUSE_SECONDS, error.message) from error
        except (Unavailable, Internal) as error:
            # However long a move of the app takes, the call waits for its end.
            if isinstance(error, AppMigrating) or self._clock.now() <= row.decided_at + _PATIENCE:
                raise RetryLater(_PAUSE_SECONDS, error.message) from error
            await self._fail(job, row, error)
        except BaobabError as error:
            await self._fail(job, row, error)

    async def _attempt(self, job: Job, row: Any) -> None:
        self._check_can_succeed(job, row)
        arguments = json.loads(self._seals.open(row.id, "arguments", row.arguments))
        require_makeable(job.registry, row, arguments)
        tool = job.registry.find(row.tool)
        async with self._database.reading() as connection:
            caller = await restore_acting_caller(job.services, connection, row, tool)
        context = RequestContext(row.door, row.request_id, base_url=self._base_url)
        approved_call = ApprovedCall(
            row.id,
            job,
            self._seals,
            row.run_id,
            row.meaning,
            app_id=row.app_id,
            tainted=bool(row.tainted),
            starter=row.starter or "",
            right=describe_right(row),
        )
        await job.registry.run(tool, arguments, caller, context, approved_attempt=approved_call)

    def _check_can_succeed(self, job: Job, row: Any) -> None:
        if job.attempt > MOST_ATTEMPTS:
            raise Unfinished
        if self._clock.now() > row.decided_at + GOOD_FOR:
            problem = (
                None if job.attempt > 1 else "No server was there in the day after the decision; nothing was done."
            )
            raise Unfinished(problem)

    async def _fail(self, job: Job, row: Any, error: BaobabError) -> None:
        values = {
            "status": "failed",
            "finished_at": self._clock.now(),
            "error": render_refusal(error),
            **self._seals.without_arguments(row.id),
        }
        async with self._database.writing_unit(lock=None) as unit:
            await unit.execute(update(approvals).where(approvals.c.id == row.id).values(**values))
            await job.hold(unit, last=True)
            await job.services.notices.publish(unit, NOTICE, row.organisation_id)
            if row.run_id is not None:
                event = {"approval_id": row.id, "run_id": row.run_id}
                await job.services.jobs.emit(unit, ENDED, app_id=row.app_id, data=event)
