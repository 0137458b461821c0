"""The service behind the port `services.approvals`, and what it is made of.

A call that its credential's policy does not allow at once waits as a row (proposals.py) until a person decides
(decisions.py); an approved call is made by the executor (executor.py). What other domains ask about such calls, and how
these end without a decision, is here.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update

from baobab.storage.clock import Clock, Ids
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Database, Execute, Unit
from baobab.storage.sql.notices import Notices
from baobab.tools.approvals.decisions import CallDecisions
from baobab.tools.approvals.erasing import erase_calls, find_naming
from baobab.tools.approvals.executor import Executor, job_id_of, render_refusal
from baobab.tools.approvals.proposals import COLLECTABLE, ProposedCalls, approval_url, expire
from baobab.tools.approvals.tables import NOTICE, FieldCipher, approvals
from baobab.tools.approvals.texts import ApprovalTexts
from baobab.tools.core import BaobabError, Caller, Services
from baobab.tools.core.audit import AuditLog
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.names import find_decider
from baobab.tools.core.guard.approvals import Decision
from baobab.tools.core.guard.steps import ENDED
from baobab.tools.core.jobs import Jobs

_KEPT = timedelta(days=90)
_LOOK_SECONDS = 0.5


class ApprovalService:
    """Answers questions about waiting calls, withdraws and erases them, and expires those that nobody decides."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: Ids,
        vault: Vault,
        audit_log: AuditLog,
        jobs: Jobs,
        notices: Notices,
        base_url: str,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._clock = clock
        self._notices = notices
        self._base_url = base_url
        self.texts = ApprovalTexts(FieldCipher(vault))
        self.proposals = ProposedCalls(database, clock, ids, self.texts, audit_log, jobs, notices, base_url)
        self.decisions = CallDecisions(self.texts, jobs, notices)
        self.executor = Executor(database, clock, self.texts.seals, base_url)

    def approval_url(self, approval_id: str) -> str:
        """Returns the address of the page on which a person decides."""
        return approval_url(self._base_url, approval_id)

    def arguments(self, row: Any) -> dict[str, Any]:
        """Returns the arguments of the call; an empty object once it can no longer be executed."""
        return self.texts.arguments(row)

    async def wait_for_outcome(self, approval_id: str, caller: Caller, seconds: float) -> str | None:
        """Waits until one of the caller's own proposals has an outcome, at most for `seconds`, and returns its status.

        None if the caller has no such proposal, or its outcome has been handed out.
        """
        status = await self._status(approval_id, caller)
        for _ in range(int(seconds / _LOOK_SECONDS)):
            if status not in ("pending", "approved"):
                break
            await asyncio.sleep(_LOOK_SECONDS)
            status = await self._status(approval_id, caller)
        return status

    async def _status(self, approval_id: str, caller: Caller) -> str | None:
        """Returns the status of a proposal of the caller's; None if there is none or its outcome was handed out."""
        conditions = (
            approvals.c.id == approval_id,
            approvals.c.proposer == proposers.proposer_name(caller),
            approvals.c.collected_at.is_(None),
        )
        async with self._database.reading() as connection:
            row = (
                await connection.execute(select(approvals.c.status, approvals.c.expires_at).where(*conditions))
            ).first()
        if row is None:
            return None
        is_overdue = row.status == "pending" and row.expires_at <= self._clock.now()
        return "expired" if is_overdue else str(row.status)

    async def read_decision(self, run_id: str, request_id: str) -> Decision | None:
        """Returns the decision about a step of a run; None if nobody has decided."""
        query = select(approvals).where(
            approvals.c.proposer == f"run:{run_id}",
            approvals.c.request_id == request_id,
            approvals.c.decided_with.is_not(None),
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query.order_by(approvals.c.created_at.desc()).limit(1))).first()
            name = None if row is None else await find_decider(connection.execute, row)
        if row is None:
            return None
        is_approved, arguments = row.status != "rejected", self.texts.used_arguments(row)
        return Decision(
            row.id, is_approved, row.decided_by, row.decided_at, row.reason, list(row.agreed or ()), arguments, name
        )

    async def abandon(self, run_id: str) -> None:
        """Withdraws the proposals of a run that has ended, unless they were rejected or their call has begun."""
        is_open = (approvals.c.proposer == f"run:{run_id}", approvals.c.status.in_(("pending", "approved")))
        columns = (approvals.c.id, approvals.c.status)
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(*columns).where(*is_open))).all()
        if not rows:
            return
        async with self._database.writing(lock=None) as connection:
            # They are read again under a lock: somebody may have decided one in the meantime.
            locking_query = select(*columns).where(*is_open).order_by(approvals.c.id).with_for_update()
            for approval_id, status in (await connection.execute(locking_query)).all():
                if status == "approved" and not await self._jobs.withdraw(connection.execute, job_id_of(approval_id)):
                    continue
                values = {
                    "status": "rejected",
                    "reason": "The run that proposed it has ended.",
                    "finished_at": self._clock.now(),
                    **self.texts.seals.without_arguments(approval_id),
                }
                await connection.execute(update(approvals).where(approvals.c.id == approval_id).values(**values))

    async def has_ended(self, run_id: str, request_id: str) -> bool:
        """Returns whether a call that a run proposed has been made, refused or left to expire."""
        conditions = (
            approvals.c.proposer == f"run:{run_id}",
            approvals.c.request_id == request_id,
            approvals.c.finished_at.is_not(None),
        )
        async with self._database.reading() as connection:
            return (await connection.execute(select(approvals.c.id).where(*conditions).limit(1))).first() is not None

    async def list_pending_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> Sequence[Any]:
        """Lists the pending approvals of runs, oldest first, as a transaction sees them."""
        if not run_ids:
            return []
        query = select(approvals).where(
            approvals.c.run_id.in_(run_ids),
            approvals.c.proposer.in_([f"run:{run_id}" for run_id in run_ids]),
            approvals.c.status == "pending",
            approvals.c.expires_at > self._clock.now(),
        )
        return (await execute(query.order_by(approvals.c.created_at, approvals.c.id))).all()

    async def list_decided_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> Sequence[Any]:
        """Lists the approvals of runs that somebody has decided about, newest first: at most a hundred."""
        query = select(approvals).where(approvals.c.run_id.in_(run_ids), approvals.c.decided_at.is_not(None))
        return (await execute(query.order_by(approvals.c.decided_at.desc()).limit(100))).all()

    async def list_runs_that_wait(self, after: str, most: int) -> list[str]:
        """Lists the ids of runs with a pending proposal, in order: at most `most`, all greater than `after`."""
        run_ids = select(approvals.c.run_id).where(approvals.c.status == "pending", approvals.c.run_id > after)
        query = run_ids.distinct().order_by(approvals.c.run_id).limit(most)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def list_approved_of_app(self, app_id: str) -> list[str]:
        """Lists the ids of an app's calls that were approved and have not finished."""
        query = select(approvals.c.id).where(approvals.c.app_id == app_id, approvals.c.status == "approved")
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def erase_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> None:
        """Deletes the proposals of runs in the caller's transaction, except those that are still pending."""
        conditions = (approvals.c.run_id.in_(run_ids), approvals.c.status != "pending")
        await execute(delete(approvals).where(*conditions))

    async def find_naming(self, execute: Execute, organisation_id: str, is_named: Callable[[str], bool]) -> list[str]:
        """Finds the calls of an organisation that are not made yet and whose arguments, as JSON, a function picks."""
        return await find_naming(execute, self.texts.seals, organisation_id, is_named)

    async def erase_calls(self, unit: Unit, organisation_id: str, ids: Sequence[str]) -> None:
        """Erases what calls were asked with and what they answered. Those that are not made yet are rejected."""
        await erase_calls(unit, self._jobs, self._notices, self._clock, self.texts.seals, organisation_id, ids)

    async def refuse_outdated(self, approval_id: str, error: BaobabError, *, status: str = "pending") -> None:
        """Marks a waiting call that no server can make any more as failed, and lets the run that proposed it go on.

        status: `approved` for one that was approved and not executed.
        """
        is_pending = (approvals.c.id == approval_id, approvals.c.status == status)
        async with self._database.writing_unit(lock=None) as unit:
            row: Any = (await unit.execute(select(approvals).where(*is_pending).with_for_update())).first()
            if row is None:
                return
            values = {
                "status": "failed",
                "finished_at": self._clock.now(),
                "error": render_refusal(error),
                **self.texts.seals.without_arguments(approval_id),
            }
            await unit.execute(update(approvals).where(*is_pending).values(**values))
            await self._notices.publish(unit, NOTICE, row.organisation_id)
            if row.run_id is not None:
                event = {"approval_id": row.id, "run_id": row.run_id}
                await self._jobs.emit(unit, ENDED, app_id=row.app_id, data=event)

    async def tend(self) -> None:
        """Expires overdue proposals, erases results that nobody fetched, and deletes old rows."""
        now = self._clock.now()
        overdue_query = select(approvals.c.id).where(approvals.c.status == "pending", approvals.c.expires_at <= now)
        async with self._database.reading() as connection:
            overdue_ids = (await connection.execute(overdue_query.limit(100))).scalars().all()
        if overdue_ids:
            async with self._database.writing(lock=None) as connection:
                for approval_id in overdue_ids:
                    await expire(connection, self.texts.seals, now, approval_id)
        is_uncollected = (approvals.c.result.is_not(None), approvals.c.finished_at <= now - COLLECTABLE)
        is_past = (approvals.c.created_at < now - _KEPT, approvals.c.status != "approved")
        async with self._database.writing(lock=None) as connection:
            await connection.execute(update(approvals).where(*is_uncollected).values(result=None))
            await connection.execute(delete(approvals).where(*is_past))


def service_of(services: Services) -> ApprovalService:
    """Returns the implementation behind the port `services.approvals`."""
    service = services.approvals
    assert isinstance(service, ApprovalService)
    return service
