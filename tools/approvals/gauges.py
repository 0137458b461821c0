"""The gauges of approvals, for the metrics."""

from sqlalchemy import func, select

from baobab.tools.approvals.tables import approvals as rows
from baobab.tools.approvals.toolset import approvals
from baobab.tools.core import Services
from baobab.tools.core.gauges import Reading


@approvals.gauge("baobab_approvals_pending")
async def read_pending(services: Services) -> Reading:
    """Calls that wait for a person's decision."""
    conditions = (rows.c.status == "pending", rows.c.expires_at > services.clock.now())
    async with services.database.reading() as connection:
        number = await connection.scalar(select(func.count()).select_from(rows).where(*conditions))
    return {(): float(number or 0)}
