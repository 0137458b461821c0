"""Gauges of credits."""

from sqlalchemy import func, select

from baobab.tools.billing.tables import credit_reservations
from baobab.tools.billing.toolset import billing
from baobab.tools.core import Services
from baobab.tools.core.gauges import Reading
from baobab.tools.core.limits.money import usd


@billing.gauge("baobab_credits_reserved_usd")
async def read_reserved(services: Services) -> Reading:
    """Credits that are reserved for calls under way, of all organisations together, in US dollars."""
    open_ = credit_reservations.c.ended_at.is_(None)
    async with services.database.reading() as connection:
        reserved_nanos = await connection.scalar(select(func.sum(credit_reservations.c.amount)).where(open_))
    return {(): usd(int(reserved_nanos or 0))}
