"""When a person is told: at once or in a digest, and not in their quiet hours."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

SPACING = timedelta(seconds=60)
"""A person gets at most one message to each channel in this time; what comes meanwhile is told together."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Times of day in a time zone. If `begin` is later than `end`, they last over midnight."""

    begin: time
    end: time
    zone: ZoneInfo

    def find_end(self, moment: datetime) -> datetime:
        """Returns when the quiet hours end that a moment lies in; the moment itself outside of them."""
        local = moment.astimezone(self.zone)
        at, over_midnight = local.time().replace(tzinfo=None), self.begin > self.end
        inside = (at >= self.begin or at < self.end) if over_midnight else self.begin <= at < self.end
        if not inside:
            return moment
        day = local.date() + timedelta(days=1 if over_midnight and at >= self.begin else 0)
        end = datetime.combine(day, self.end, self.zone)
        if end.astimezone(UTC) <= moment:
            # The clock was set back, and the time of day comes a second time.
            end = end.replace(fold=1)
        return max(end.astimezone(UTC), moment)


def read_quiet_hours(row: Any) -> QuietHours | None:
    """Returns the quiet hours of a row of settings."""
    if row.quiet_from is None:
        return None
    return QuietHours(time.fromisoformat(row.quiet_from), time.fromisoformat(row.quiet_until), ZoneInfo(row.time_zone))


def find_due(now: datetime, row: Any) -> datetime:
    """Returns when a person is told of what begins to wait now.

    Digests end at full multiples of their length, so that all that comes in one is told together.
    """
    due_at = now
    if row.digest_minutes:
        length = row.digest_minutes * 60
        due_at = datetime.fromtimestamp((int(now.timestamp()) // length + 1) * length, UTC)
    quiet = read_quiet_hours(row)
    return due_at if quiet is None else quiet.find_end(due_at)


def find_pause(now: datetime, row: Any) -> float:
    """Returns the seconds until a person may be told something by their present settings; 0 for now."""
    quiet = read_quiet_hours(row)
    free_at = now if quiet is None else quiet.find_end(now)
    if row.last_sent_at is not None:
        free_at = max(free_at, row.last_sent_at + SPACING)
    return max(0.0, (free_at - now).total_seconds())
