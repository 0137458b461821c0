"""Held decisions: one that was made in the console counts ten seconds later, and can be taken back until then.

A held decision is a row, and a job that makes it count when it is due. Its states:

    held -> taken_back
    held -> due -> counted | refused
    held | due -> dropped, because another decision about the call was first

The call itself waits unchanged until the decision counts. That happens through `approvals_approve` and
`approvals_reject`, as the person who decided and with their present rights, and marks the row in the same transaction:
an attempt after a crash finds it counted, and does nothing.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import and_, case, delete, select, update

from baobab.storage.clock import Clock
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Database, Execute, Unit
from baobab.tools.approvals.inbox.tables import approval_snoozes, held_decisions
from baobab.tools.approvals.tables import NOTICE
from baobab.tools.core import Account, AppKey, BaobabError, Call, Job, RateLimited, RetryLater
from baobab.tools.core.auth import proposers
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import Internal
from baobab.tools.core.guard.approvals import AlreadyDecided
from baobab.tools.core.jobs import OUTAGES

HOLD = timedelta(seconds=10)
"""How long a decision can be taken back."""
JOB = "approvals_count_held"
_OPEN = ("held", "due")
_KEPT = timedelta(days=1)
_PAUSE_SECONDS = 5.0
_IS_OPEN = held_decisions.c.state.in_(_OPEN)


def job_id_of(held_id: str) -> str:
    """Returns the id of the job that makes a held decision count."""
    return f"held:{held_id}"


def seal_decision(vault: Vault, held_id: str, decision: Mapping[str, Any]) -> str:
    return vault.seal(json.dumps(decision).encode(), _seal_context(held_id))


def _seal_context(held_id: str) -> str:
    return f"{held_decisions.name}.decision:{held_id}"


async def end_held(call: Call, approval_id: str, status: Literal["approved", "rejected"], *, is_over: bool) -> None:
    """Ends the held decisions about a call that is being decided, in the transaction of the decision.

    That of the decider, which is due now, has counted; all others come too late. is_over: False if further people must
    agree. Then the others still count.
    """
    caller = call.caller
    account_id = caller.account_id if isinstance(caller, (Account, AppKey)) else None
    c = held_decisions.c
    has_counted = and_(c.account_id == account_id, c.state == "due", c.status == status)
    conditions = [c.approval_id == approval_id, _IS_OPEN]
    if not is_over:
        conditions.append(c.account_id == account_id)
    values = {"state": case((has_counted, "counted"), else_="dropped"), "decision": None, "finished_at": call.now}
    await call.execute(update(held_decisions).where(*conditions).values(values))


async def count_held(job: Job, held_id: str) -> None:
    """Makes a held decision count: it decides as the person who made it. Raises RetryLater if it may later."""
    is_held = held_decisions.c.id == held_id
    async with job.writing(lock=None) as unit:
        # From here on it cannot be taken back.
        row: Any = (await unit.execute(select(held_decisions).where(is_held).with_for_update())).first()
        if row is None or row.state not in _OPEN:
            return
        await unit.execute(update(held_decisions).where(is_held).values(state="due"))
    services = job.services
    decision = json.loads(services.vault.open(row.decision, _seal_context(held_id)))
    origin = decision.pop("origin")
    context = RequestContext("console", base_url=services.options.base_url, **origin)
    tool = job.registry.find("approvals_approve" if row.status == "approved" else "approvals_reject")
    try:
        async with job.database.reading() as connection:
            caller = await proposers.restore_caller(
                connection.execute, services.credits, row.caller, services.clock.now()
            )
        await job.registry.run(tool, {"approval_id": row.approval_id, **decision}, caller, context)
    except (proposers.CallerUnreadable, RateLimited, Internal, *OUTAGES) as error:
        raise RetryLater(_PAUSE_SECONDS, str(error)) from error
    except BaobabError as error:
        state = "dropped" if isinstance(error, AlreadyDecided) else "refused"
        await _end(job, row, state, error)


async def _end(job: Job, row: Any, state: str, error: BaobabError) -> None:
    """Ends a decision that did not count."""
    conditions = (held_decisions.c.id == row.id, held_decisions.c.state == "due")
    problem = {"code": error.code, "message": error.message}
    finished_at = job.services.clock.now()
    values = {"state": state, "problem": problem, "decision": None, "finished_at": finished_at}
    async with job.writing(last=True, lock=None) as unit:
        await unit.execute(update(held_decisions).where(*conditions).values(values))
        # It waits again for those who decide.
        await job.services.notices.publish(unit, NOTICE, row.organisation_id)


async def erase_held(unit: Unit, approval_ids: list[str]) -> None:
    """Deletes the held decisions about calls that are erased, with the arguments that they hold."""
    await unit.execute(delete(held_decisions).where(held_decisions.c.approval_id.in_(approval_ids)))


async def list_held(execute: Execute, account_id: str, since: Any) -> list[Any]:
    """Lists the decisions of a person that are held, or were made since a moment; the newest first."""
    c = held_decisions.c
    query = select(*(column for column in c if column is not c.decision))
    query = query.where(c.account_id == account_id, (c.created_at >= since) | _IS_OPEN)
    return list((await execute(query.order_by(c.created_at.desc(), c.id))).all())


async def forget_past(database: Database, clock: Clock) -> None:
    """Deletes held decisions that are over since a day, and snoozes that are."""
    now = clock.now()
    async with database.writing(lock=None) as connection:
        is_over = held_decisions.c.finished_at < now - _KEPT
        await connection.execute(delete(held_decisions).where(is_over))
        await connection.execute(delete(approval_snoozes).where(approval_snoozes.c.until < now - _KEPT))
