"""The audit log is as long as a plan has room for: what is least needed leaves first, the oldest of it."""

import logging
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, not_, select

from baobab.tools.audit_logs.toolset import audit_logs
from baobab.tools.core.audit import audit_logs as table
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.job import Job
from baobab.tools.core.plans import PLANS

GUARDED_DAYS = 90
"""Rows of changes and sign-ins by the organisation's own people and keys stay so long beyond the cap."""
GUARDED_SHARE = 10
"""How many times the cap they may be then: a flood of changes must end somewhere, too."""
_OF_NOBODY = 100_000
"""Rows that belong to no organisation, such as refused sign-ins."""
_AT_ONCE = 1000
_log = logging.getLogger(__name__)


@audit_logs.job(every=3600)
async def audit_logs_trim(job: Job) -> None:
    """Remove the oldest rows of organisations that have more than their plan has room for."""
    services = job.services
    since = services.clock.now() - timedelta(days=GUARDED_DAYS)
    guarded = and_(
        table.c.created_at >= since,
        table.c.category.in_(("admin", "auth")),
        table.c.actor_type.not_in(("anonymous", "app_user")),
    )
    counted = (
        select(table.c.organisation_id, organisations.c.plan, func.count().label("rows"))
        .outerjoin(organisations, organisations.c.id == table.c.organisation_id)
        .group_by(table.c.organisation_id, organisations.c.plan)
    )
    async with services.database.reading() as connection:
        trails: Any = (await connection.execute(counted)).all()
    for organisation, plan, rows in trails:
        cap = _OF_NOBODY if plan is None else PLANS[plan].audit_rows
        if cap is None or rows <= cap:
            continue
        whose = table.c.organisation_id == organisation if organisation else table.c.organisation_id.is_(None)
        left = rows - await _remove_oldest(job, rows - cap, whose, not_(guarded))
        if left > cap * GUARDED_SHARE:
            told = {"organisation_id": organisation, "rows": left - cap * GUARDED_SHARE}
            _log.warning("an audit log has more changes of its last days than its plan has room for", extra=told)
            await _remove_oldest(job, left - cap * GUARDED_SHARE, whose)


async def _remove_oldest(job: Job, most: int, *which: ColumnElement[bool]) -> int:
    """Remove the oldest rows of some, in small transactions: others must get their turns. How many there were."""
    removed = 0
    while removed < most:
        wanted = min(_AT_ONCE, most - removed)
        oldest = select(table.c.id).where(*which).order_by(table.c.created_at, table.c.id).limit(wanted)
        async with job.writing() as unit:
            gone = (await unit.execute(delete(table).where(table.c.id.in_(oldest)))).rowcount
        removed += gone
        if gone < wanted:
            break
    return removed
