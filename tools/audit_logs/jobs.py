"""Jobs of the audit log: keep it as long as the plan allows, removing the least needed rows first, oldest first."""

import logging
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, not_, select

from baobab.tools.audit_logs.toolset import audit_logs
from baobab.tools.core import Job
from baobab.tools.core.audit import audit_logs as table
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.limits.plans import PLANS

GUARDED_DAYS = 90
"""For so many days, rows of changes and sign-ins by the organisation's own accounts and keys may exceed the cap."""
GUARDED_SHARE = 10
"""The number of rows, as a multiple of the cap, at which these are removed, too."""
_OF_NOBODY = 100_000
"""The cap of the rows that belong to no organisation, such as refused sign-ins."""
_AT_ONCE = 1000
_log = logging.getLogger(__name__)


@audit_logs.job(every=3600, in_copies=True)
async def audit_logs_trim(job: Job) -> None:
    """Remove the oldest rows of organisations that have more than their plan allows."""
    services = job.services
    since = services.clock.now() - timedelta(days=GUARDED_DAYS)
    is_guarded = and_(
        table.c.created_at >= since,
        table.c.category.in_(("admin", "auth")),
        table.c.actor_type.not_in(("anonymous", "app_user")),
    )
    size_query = (
        select(table.c.organisation_id, organisations.c.plan, func.count().label("rows"))
        .outerjoin(organisations, organisations.c.id == table.c.organisation_id)
        .group_by(table.c.organisation_id, organisations.c.plan)
    )
    async with services.database.reading() as connection:
        log_sizes: Any = (await connection.execute(size_query)).all()
    for organisation, plan, rows in log_sizes:
        cap = _OF_NOBODY if plan is None else PLANS[plan].audit_rows
        if cap is None or rows <= cap:
            continue
        owner = table.c.organisation_id == organisation if organisation else table.c.organisation_id.is_(None)
        excess = rows - await _remove_oldest(job, rows - cap, owner, not_(is_guarded))
        if excess > cap * GUARDED_SHARE:
            fields = {"organisation_id": organisation, "rows": excess - cap * GUARDED_SHARE}
            _log.warning("an audit log has more changes of its last days than its plan has room for", extra=fields)
            await _remove_oldest(job, excess - cap * GUARDED_SHARE, owner)


async def _remove_oldest(job: Job, most: int, *conditions: ColumnElement[bool]) -> int:
    """Removes the oldest rows that meet the conditions, at most `most`, and returns their number.

    It uses small transactions, so that others can write between them.
    """
    removed_count = 0
    while removed_count < most:
        batch_size = min(_AT_ONCE, most - removed_count)
        oldest = select(table.c.id).where(*conditions).order_by(table.c.created_at, table.c.id).limit(batch_size)
        async with job.writing() as unit:
            deleted_count = (await unit.execute(delete(table).where(table.c.id.in_(oldest)))).rowcount
        removed_count += deleted_count
        if deleted_count < batch_size:
            break
    return removed_count
