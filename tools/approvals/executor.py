"""The executor: runs approved calls, each exactly once, on any worker and however often a worker is killed.

Each execution is a durable job. The row becomes `executed` in the transaction of the call's own effects, and only while
this attempt holds the job, so one of several attempts counts. A key-value store keeps the results of what a call did
there, and a later attempt does not repeat it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import select, update

from baobab.runtime.agents.charges import find_spender
from baobab.storage.clock import Clock
from baobab.storage.sql.database import Database, Unit
from baobab.tools.approvals.acting import describe_right, restore_acting_caller
from baobab.tools.approvals.carrying_over import require_makeable
from baobab.tools.approvals.errors import Unfinished
from baobab.tools.approvals.tables import NOTICE, FieldCipher, approvals
from baobab.tools.core import AppMigrating, AppNotFound, BaobabError, Call, Job, RetryLater, Services, Unavailable
from baobab.tools.core.auth.proposers import CallerUnreadable
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import Internal
from baobab.tools.core.guard.steps import ENDED
from baobab.tools.core.jobs import Jobs
from baobab.tools.core.limits.credits import Spender
from baobab.tools.core.stores import Stores

JOB = "approvals_execute"
MOST_ATTEMPTS = 10
"""After so many attempts that ended with their server, the call itself is taken for the reason."""
# Shorter than a store keeps the results of an attempt (storage/kv/idempotency.py).
GOOD_FOR = timedelta(days=1)
_PATIENCE = timedelta(minutes=2)
_PAUSE_SECONDS = 5.0
_MOST_WARNINGS = 20


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
            "warnings": seal_warnings(self.seals, self.id, call.warnings or ()),
            "action_id": call.action_id,
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


def seal_warnings(seals: FieldCipher, approval_id: str, warnings: Sequence[str]) -> str | None:
    """Seals the warnings of a call as its row keeps them: the first, and how many more there were."""
    if not warnings:
        return None
    kept_warnings = list(warnings[:_MOST_WARNINGS])
    if len(warnings) > _MOST_WARNINGS:
        kept_warnings.append(f"There were {len(warnings) - _MOST_WARNINGS} more warnings.")
    return seals.seal(approval_id, "warnings", json.dumps(kept_warnings, separators=(",", ":")))


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


async def _find_spender(services: Services, row: Any) -> Spender | None:
    """Returns the run that pays for the call of a row, if one proposed it and is still there."""
    if row.run_id is None or row.app_id is None:
        return None
    try:
        app = await services.directory.app(row.app_id)
    except AppNotFound:
        return None
    return await find_spender(services.stores_of(app.region).database, row.run_id)


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
        context.spender = await _find_spender(job.services, row)
        context.credits = job.services.credits.for_attempt(row.id)
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
