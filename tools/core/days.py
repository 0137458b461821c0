"""Days (UTC) that callers ask about: the first and the last, both included."""

from datetime import date, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from baobab.tools.core.errors import BadRequest

_USUAL = timedelta(days=30)
_OLDEST = date(2000, 1, 1)


def _check_day(day: date) -> date:
    # Days before this are refused, because subtracting from the first days of the calendar would fail.
    if day < _OLDEST:
        raise ValueError(f"must be {_OLDEST} or later")
    return day


Day = Annotated[date, Field(strict=False), AfterValidator(_check_day)]


def first_and_last(start: date | None, end: date | None, today: date) -> tuple[date, date]:
    """Returns the days that `startDate` and `endDate` name; by default, the 30 days up to today. Raises BadRequest."""
    last = end or today
    first = start or last - _USUAL
    if first > last:
        raise BadRequest("`startDate` is after `endDate`.")
    return first, last
