"""Schedules: hours of a trigger's own, as cron expressions in a time zone."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from baobab.runtime.jobs.cron import Cron, CronInvalid

_LATE = timedelta(minutes=10)
"""A tick that is later than this, because no server ran, is missed."""
_MINUTE = timedelta(minutes=1)


def parse_schedule(expression: str, time_zone: str) -> Cron:
    """Returns a schedule. Raises CronInvalid, also for a zone that does not exist."""
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise CronInvalid("names no time zone such as Europe/Prague") from exc
    return Cron(expression, None if time_zone == "UTC" else zone)


def find_tick(schedule: Cron, due: datetime, now: datetime, *, catch_up: bool) -> datetime | None:
    """Returns the tick that starts now: the latest of those that are due; None if it was missed.

    catch_up: whether one of those that were missed is made up for.
    """
    tick = schedule.find_latest(max(due - _MINUTE, now - _LATE), now)
    if tick is not None:
        return tick
    return due if catch_up else None
