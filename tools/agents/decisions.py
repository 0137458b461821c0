"""Cancelling and resuming runs."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, update

from baobab.runtime.agents.edits import edit_call
from baobab.runtime.agents.run_tree import request_cancel
from baobab.runtime.agents.tables import ENDED, FROZEN, runs
from baobab.tools.agents.awaited_runs import list_descendant_runs
from baobab.tools.agents.errors import NotPaused, RunEnded, TokenInvalid
from baobab.tools.agents.run_ownership import get_run_row
from baobab.tools.agents.schemas.agents import RunState
from baobab.tools.agents.tokens import find_matching_row
from baobab.tools.core import AppMigrating, Call
from baobab.tools.core.auth.deciders import Decider, NotYoursToDecide, PendingDecision, person, starter_of
from baobab.tools.core.auth.names import find_decider
from baobab.tools.core.guard.approvals import AlreadyDecided
from baobab.tools.core.guard.proposals import Decisions


async def get_cancellable_run(call: Call, app_id: str, run_id: str, agent: str | None = None) -> Any:
    """Returns the row of a run that the caller may cancel. Raises RunNotFound, RunEnded or a decider's refusal."""
    row = await get_run_row(call, app_id, run_id, agent)
    if not _may_end(call, row):
        Decider(call.caller, call.role).require(PendingDecision.of_run(row))
    if row.status in ENDED:
        raise RunEnded(details={"status": row.status})
    return row


def may_cancel(call: Call, row: Any) -> bool:
    """Returns whether the caller may cancel a run now."""
    return row.status not in ENDED and _may_end(call, row)


def _may_end(call: Call, row: Any) -> bool:
    """Returns whether the caller is among those who end a run: its starter, also with a key that has limits."""
    if call.caller.limits is not None and person(call.caller) == starter_of(row):
        return True
    return Decider(call.caller, call.role).may(PendingDecision.of_run(row))


async def cancel_run(call: Call, app_id: str, run_id: str, agent: str | None = None) -> RunState:
    """Cancels a run: `cancelled` at once if no worker has it, else `cancelling`. Raises RunNotFound or RunEnded."""
    row = await get_cancellable_run(call, app_id, run_id, agent)
    call.audit.resource_id = run_id
    status: Any = await request_cancel(call.services, call.stores.database, row)
    if status is None:
        row = await get_run_row(call, app_id, run_id, agent)
        if row.job_id == FROZEN:
            raise AppMigrating
        raise RunEnded(details={"status": row.status})
    return {"run_id": run_id, "status": status}


async def resume_run(
    call: Call,
    app_id: str,
    run_id: str,
    token: str,
    *,
    approved: bool,
    arguments: Mapping[str, Any] | None,
    data: Mapping[str, Any] | None,
    reason: str | None,
    even_if_failing: bool = False,
    agent: str | None = None,
) -> RunState:
    """Decides about one call that the run, or a child run of it, waits for.

    RunNotFound, NotPaused, TokenInvalid, AlreadyDecided, NotAnApprover, WouldFail, Forbidden, BadRequest.
    """
    if call.caller.limits is not None:
        raise NotYoursToDecide
    if approved and not even_if_failing:
        await _require_success(call, app_id, run_id, token, arguments, data)
    run_ids = await _list_run_ids(call, app_id, run_id)
    waiting_rows = list(await call.services.approvals.list_pending_of_runs(call.execute, run_ids))
    decider, decided_row = Decider(call.caller, call.role), None
    row = find_matching_row(call.services.vault, waiting_rows, token)
    if row is None:
        decided_rows = list(await call.services.approvals.list_decided_of_runs(call.execute, run_ids))
        decided_row = find_matching_row(call.services.vault, decided_rows, token)
    asked_rows = waiting_rows if decided_row is None else [*waiting_rows, decided_row]
    is_asked = any(decider.may(PendingDecision.of_approval(asked_row)) for asked_row in asked_rows)
    # Whoever may decide about a call may answer, even if the run is somebody else's.
    run = await get_run_row(call, app_id, run_id, agent, is_asked=is_asked)
    if decided_row is not None:
        decider.require(PendingDecision.of_approval(decided_row))
        raise AlreadyDecided.of(decided_row, await find_decider(call.execute, decided_row))
    if run.status in ENDED:
        raise RunEnded(details={"status": run.status})
    if run.status != "paused" and not waiting_rows:
        raise NotPaused(details={"status": run.status})
    if row is None:
        raise TokenInvalid
    call.audit.resource_id = run_id
    call.audit.data |= {"approval_id": row.id, "tool": row.tool, "approved": approved}
    decider.require(PendingDecision.of_approval(row))
    edit = None if arguments is None and data is None else await edit_call(call, row, decider, arguments, data)
    outcome = await call.services.part(Decisions).decide(
        call, row.id, decider, "approved" if approved else "rejected", reason, edit
    )
    if outcome != "waits" and not any(other.run_id == row.run_id for other in waiting_rows if other is not row):
        await _continue_run(call, row.run_id)
        if row.run_id == run_id:
            return {"run_id": run_id, "status": "running"}
    return {"run_id": run_id, "status": run.status}


async def _require_success(
    call: Call,
    app_id: str,
    run_id: str,
    token: str,
    arguments: Mapping[str, Any] | None,
    data: Mapping[str, Any] | None,
) -> None:
    """Raises WouldFail for a call that would fail now. Whoever may not decide about it is refused later."""
    async with call.reading_apart() as reading:
        run_ids = await _list_run_ids(reading, app_id, run_id)
        rows = list(await call.services.approvals.list_pending_of_runs(reading.execute, run_ids))
        row, decider = find_matching_row(call.services.vault, rows, token), Decider(call.caller, call.role)
        if row is not None and decider.may(PendingDecision.of_approval(row)):
            await call.services.part(Decisions).require_success(reading, row, decider, arguments, data)


async def _list_run_ids(call: Call, app_id: str, run_id: str) -> list[str]:
    """Lists a run and its child runs that have not ended. The tokens of their calls are valid at each of them."""
    query = select(runs).where(runs.c.id == run_id, runs.c.app_id == app_id)
    async with call.reading() as execute:
        run = (await execute(query)).first()
    if run is None:
        return []
    return [run_id, *(descendant.id for descendant in await list_descendant_runs(call, run))]


async def _continue_run(call: Call, run_id: str) -> None:
    """Marks the run as running if its row is in this database; else the job that continues it does so."""
    if call.unit.database is call.stores.database:
        is_paused = (runs.c.id == run_id, runs.c.status == "paused", runs.c.job_id.is_(None))
        await call.execute(update(runs).where(*is_paused).values(status="running", paused_until=None))
