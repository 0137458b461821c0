"""Cron expressions of five fields, in UTC or another time zone: minute, hour, day of the month, month, day of the week.

A field has `*`, numbers, ranges (`1-5`), lists (`1,15`) and steps (`*/10`, `8-18/2`). Months and days of the week may
be three letters of their English names; Sunday is 0 or 7. As in every cron, a day fits that fits either of its two
fields where both of them are limited.

Where clocks are put forward, an hour that is left out counts as the one after it. Where they are put back, an hour that
comes twice counts once, unless the expression names every hour.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_MONTHS = {name: number for number, name in enumerate(re.findall("...", "janfebmaraprmayjunjulaugsepoctnovdec"), 1)}
_DAYS = {name: number for number, name in enumerate(re.findall("...", "sunmontuewedthufrisat"))}
_PART = re.compile(r"(\*|[a-z0-9]{1,4})(?:-([a-z0-9]{1,4}))?(?:/([0-9]{1,4}))?", re.ASCII)
_MOST_CHARACTERS = 200
_LONGEST_CHANGE_MINUTES = 180
"""How long before and after the hour is changed each minute is looked at."""
_LONGEST_YEARS = 8
"""The longest time from one 29 February to the next, in years."""


class CronInvalid(ValueError):
    """The expression is invalid. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    words: dict[str, int]

    def parse(self, text: str) -> frozenset[int]:
        return frozenset().union(*(self._parse_part(part) for part in text.split(",")))

    def _parse_part(self, text: str) -> frozenset[int]:
        match = _PART.fullmatch(text)
        if match is None:
            raise CronInvalid(f"{self.name}: `{text}` is not a number, range or step")
        start, end, step = match.groups()
        if start == "*":
            if end is not None:
                raise CronInvalid(f"{self.name}: `*` is not the end of a range")
            first, last = self.least, self.most
        else:
            first = self._read(start)
            # `5/10` goes on to the end of the field, as in other crons.
            last = self._read(end) if end is not None else (self.most if step is not None else first)
        if first > last:
            raise CronInvalid(f"{self.name}: `{text}` ends before it begins")
        if step is not None and not 1 <= int(step) <= self.most:
            raise CronInvalid(f"{self.name}: a step is from 1 to {self.most}")
        return frozenset(range(first, last + 1, int(step or 1)))

    def _read(self, text: str) -> int:
        number = self.words.get(text)
        if number is None and text.isdigit():
            number = int(text)
        if number is None or not self.least <= number <= self.most:
            raise CronInvalid(f"{self.name}: `{text}` is not from {self.least} to {self.most}")
        return number


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


class Cron:
    """An expression, parsed once."""

    def __init__(self, expression: str, zone: ZoneInfo | None = None) -> None:
        """Raises CronInvalid, also for days that never come, such as 30 February. zone: left out, UTC."""
        self._zone = zone
        texts = expression.lower().split()
        if len(texts) != len(_FIELDS) or len(expression) > _MOST_CHARACTERS:
            raise CronInvalid("has five fields: minute, hour, day of the month, month, day of the week")
        parsed_fields = [field.parse(text) for field, text in zip(_FIELDS, texts, strict=True)]
        self._minutes, self._hours = sorted(parsed_fields[0]), sorted(parsed_fields[1])
        self._days, self._months = parsed_fields[2], parsed_fields[3]
        self._weekdays = frozenset(number % 7 for number in parsed_fields[4])
        self._any_hour = texts[1].startswith("*")
        self._any_day, self._any_weekday = texts[2].startswith("*"), texts[4].startswith("*")
        self.find_next(datetime(2000, 1, 1, tzinfo=UTC))

    def find_next(self, after: datetime) -> datetime:
        """Returns the first matching minute after a moment, in UTC."""
        if self._zone is None:
            return self._find_after(after.astimezone(UTC))
        if self._any_hour and self._changes_about(after):
            moment = after.astimezone(UTC).replace(second=0, microsecond=0)
            for _ in range(_LONGEST_CHANGE_MINUTES):
                moment += timedelta(minutes=1)
                if self._fits(moment.astimezone(self._zone)):
                    return moment
        return self._find_by_wall(after, self._zone)

    def _find_by_wall(self, after: datetime, zone: ZoneInfo) -> datetime:
        """Returns the first matching minute after a moment, as a clock on the wall shows it."""
        near = timedelta(minutes=_LONGEST_CHANGE_MINUTES)
        wall = after.astimezone(zone).replace(tzinfo=UTC)
        if self._changes_about(after):
            # An hour that was left out counts as a later one, which may be yet to come.
            wall -= near
        earliest, until = None, wall
        while earliest is None or (wall < until and self._changes_about(earliest)):
            wall = self._find_after(wall)
            # `fold` is 0, so the first of two hours of one name counts.
            moment = wall.replace(tzinfo=zone).astimezone(UTC)
            if moment > after and (earliest is None or moment < earliest):
                earliest, until = moment, wall + near if earliest is None else until
        return earliest

    def _changes_about(self, after: datetime) -> bool:
        near = timedelta(minutes=_LONGEST_CHANGE_MINUTES)
        return (after - near).astimezone(self._zone).utcoffset() != (after + near).astimezone(self._zone).utcoffset()

    def _fits(self, local: datetime) -> bool:
        is_day = local.month in self._months and self._fits_day(local)
        return is_day and local.hour in self._hours and local.minute in self._minutes

    def _find_after(self, after: datetime) -> datetime:
        start = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = start.replace(hour=0, minute=0)
        while day.year <= start.year + _LONGEST_YEARS:
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._fits_day(day):
                earliest = start if day.date() == start.date() else day
                next_time = self._find_on_day(earliest)
                if next_time is not None:
                    return next_time
            day += timedelta(days=1)
        raise CronInvalid("names a day that never comes")

    def find_latest(self, since: datetime, until: datetime) -> datetime | None:
        """Returns the latest matching minute after `since` and not after `until`; None if there is none."""
        latest, upcoming = None, self.find_next(since)
        while upcoming <= until:
            latest, upcoming = upcoming, self.find_next(upcoming)
        return latest

    def _fits_day(self, day: datetime) -> bool:
        fits_day, fits_weekday = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return fits_day and fits_weekday
        return fits_day or fits_weekday

    def _find_on_day(self, earliest: datetime) -> datetime | None:
        for hour in self._hours:
            if hour < earliest.hour:
                continue
            least = earliest.minute if hour == earliest.hour else 0
            for minute in self._minutes:
                if minute >= least:
                    return earliest.replace(hour=hour, minute=minute)
        return None
