"""Erasing: what people had forgotten is not kept in the arguments of calls that wait, or that were decided."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select, update

from baobab.storage.clock import Clock
from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.notices import Notices
from baobab.tools.approvals.executor import job_id_of
from baobab.tools.approvals.inbox.holding import erase_held
from baobab.tools.approvals.tables import NOTICE, FieldCipher, approvals
from baobab.tools.core.guard.steps import ENDED
from baobab.tools.core.jobs import Jobs

_AT_ONCE = 200
_REASON = "What it is about was forgotten."
_UNFINISHED = approvals.c.status.in_(("pending", "approved"))


async def find_naming(
    execute: Execute, seals: FieldCipher, organisation_id: str, is_named: Callable[[str], bool]
) -> list[str]:
    """Returns the ids of an organisation's pending calls whose arguments, as JSON, a function picks."""
    of_organisation, after = approvals.c.organisation_id == organisation_id, ""
    approval_ids: list[str] = []
    while True:
        query = select(approvals.c.id, approvals.c.arguments).where(
            of_organisation, _UNFINISHED, approvals.c.id > after
        )
        rows = (await execute(query.order_by(approvals.c.id).limit(_AT_ONCE))).all()
        if not rows:
            return approval_ids
        after = rows[-1].id
        # Waiting arguments may be megabytes.
        approval_ids += await asyncio.to_thread(_filter, rows, seals, is_named)


def _filter(rows: Sequence[Any], seals: FieldCipher, is_named: Callable[[str], bool]) -> list[str]:
    return [row.id for row in rows if is_named(seals.open(row.id, "arguments", row.arguments))]


async def erase_calls(
    unit: Unit,
    jobs: Jobs,
    notices: Notices,
    clock: Clock,
    seals: FieldCipher,
    organisation_id: str,
    ids: Sequence[str],
) -> None:
    """Erases what calls were asked with and what they answered. Those that are not made yet are rejected."""
    for approval_id in sorted(ids):
        conditions = (approvals.c.organisation_id == organisation_id, approvals.c.id == approval_id)
        query = select(approvals.c.status, approvals.c.run_id, approvals.c.app_id).where(*conditions).with_for_update()
        row: Any = (await unit.execute(query)).first()
        if row is None:
            continue
        values: dict[str, Any] = {"fields": None, "asked_fields": None, "used": None, "result": None, "ask": None} | {
            "reading": None,
            "warnings": None,
        }
        # One whose job has begun waits for this transaction, and then finds that what it names is gone.
        is_withdrawn = row.status == "pending" or (
            row.status == "approved" and await jobs.withdraw(unit.execute, job_id_of(approval_id))
        )
        if is_withdrawn:
            values |= {"status": "rejected", "reason": _REASON, "finished_at": clock.now()}
        if row.status != "approved" or is_withdrawn:
            values |= seals.without_arguments(approval_id)
        await unit.execute(update(approvals).where(*conditions).values(**values))
        if is_withdrawn and row.run_id is not None:
            details = {"approval_id": approval_id, "run_id": row.run_id}
            await jobs.emit(unit, ENDED, app_id=row.app_id, data=details)
    if ids:
        await erase_held(unit, list(ids))
        await notices.publish(unit, NOTICE, organisation_id)
