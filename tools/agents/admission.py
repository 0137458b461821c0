"""Admission of runs: limits by the hour, budgets and concurrent runs. Each is counted exactly, in a transaction."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Executable, bindparam, func, select, update

from baobab.runtime.agents.charges import find_spent_budget
from baobab.runtime.agents.tables import UNENDED, counts, runs
from baobab.storage.sql.database import Database
from baobab.storage.sql.tables import build_upsert
from baobab.tools.agents.errors import LimitExceeded, Overloaded
from baobab.tools.core import Call
from baobab.tools.core.limits.money import usd
from baobab.tools.core.limits.rate_limits import network

_HOUR = 3600
_MOST_QUEUED = 1000
# Built once: every start asks one of them.
_COUNT_QUEUED = select(func.count()).where(UNENDED, runs.c.app_id == bindparam("app"), runs.c.status == "queued")
_COUNT_OF_AGENT = select(func.count()).where(
    UNENDED, runs.c.app_id == bindparam("app"), runs.c.agent_id == bindparam("agent")
)
_COUNT_UNENDED = select(_COUNT_QUEUED.scalar_subquery(), _COUNT_OF_AGENT.scalar_subquery())


async def count_run(call: Call, agent: Any, user: str) -> None:
    """Counts a start, even one that is refused, for its user, address and app in this hour. Raises LimitExceeded."""
    hour = int(call.services.clock.time() // _HOUR)
    limits = {
        "max_runs_per_user_per_hour": (user, agent.max_runs_per_user_per_hour),
        "max_runs_per_ip_per_hour": (f"ip:{network(call.context.ip)}"[:120], agent.max_runs_per_ip_per_hour),
        "max_runs_per_app_per_hour": ("", agent.max_runs_per_app_per_hour),
    }
    set_limits = {limit: pair for limit, pair in limits.items() if pair[1] is not None}
    if not set_limits:
        return
    refusal: LimitExceeded | None = None
    database: Database = call.stores.database
    async with database.writing(lock=None) as connection:
        for limit, (subject, maximum) in set_limits.items():
            # The subject begins with the limit: one address may be counted as the user, too.
            key = {"app_id": agent.app_id, "agent_id": agent.id, "subject": f"{limit}:{subject}"[:120], "hour": hour}
            count_statement = (
                update(counts).filter_by(**key).values(started=counts.c.started + 1).returning(counts.c.started)
            )
            now: int | None = (await connection.execute(count_statement)).scalar()
            if now is None:
                # Without a target, since an upsert that names one of two keys may fail by the other.
                first = build_upsert(database.dialect, counts).values(**key, started=0)
                await connection.execute(first.on_conflict_do_nothing())
                now = int((await connection.execute(count_statement)).scalar_one())
            if now > maximum and refusal is None:
                reset = datetime.fromtimestamp((hour + 1) * _HOUR, UTC)
                wait_seconds = (hour + 1) * _HOUR - int(call.services.clock.time())
                refusal = _limit_error(limit, now - 1, maximum, reset, wait_seconds)
    if refusal is not None:
        raise refusal


async def find_budget_refusal(call: Call, agent: Any) -> LimitExceeded | None:
    """Returns the error that a start is refused with if the agent's daily budget is spent, else None."""
    spent_budget = await find_spent_budget(call.services.credits, call.require_app().organisation_id, agent)
    if spent_budget is None:
        return None
    tomorrow = datetime.combine(call.now.date(), datetime.min.time(), UTC) + timedelta(days=1)
    wait_seconds = int((tomorrow - call.now).total_seconds())
    return _limit_error("daily_budget_usd", usd(spent_budget), usd(agent.daily_budget), None, wait_seconds)


def count_under_way(agent: Any) -> tuple[Executable, dict[str, Any]]:
    """Builds the query whose rows `require_room` takes."""
    if agent.max_concurrent_runs is None:
        return _COUNT_QUEUED, {"app": agent.app_id}
    return _COUNT_UNENDED, {"app": agent.app_id, "agent": agent.id}


def require_room(agent: Any, rows: Iterable[Any]) -> None:
    """Raises LimitExceeded or Overloaded.

    rows: what `count_under_way` finds in the transaction that inserts the run, under the write lock.
    """
    ((queued_count, *under_way),) = rows
    if under_way and under_way[0] >= agent.max_concurrent_runs:
        raise _limit_error("max_concurrent_runs", under_way[0], agent.max_concurrent_runs, None, 5)
    if queued_count >= _MOST_QUEUED:
        raise Overloaded


def _limit_error(
    limit: str, current: float, most: float, reset_at: datetime | None, wait_seconds: int
) -> LimitExceeded:
    details = {
        "limit": limit,
        "current": current,
        "max": most,
        "reset_at": None if reset_at is None else reset_at.isoformat(),
    }
    return LimitExceeded(f"{limit} is {most:g}.", details=details, retry_after=max(wait_seconds, 1))
