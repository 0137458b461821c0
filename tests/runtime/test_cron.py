"""Cron expressions say which minutes fit."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.runtime.jobs.cron import Cron, CronInvalid


@pytest.mark.parametrize(
    ("expression", "after", "expected_minute"),
    [
        ("* * * * *", "2026-11-25T09:00:30", "2026-11-25T09:01"),
        ("*/15 * * * *", "2026-11-25T09:00", "2026-11-25T09:15"),
        ("0 9 * * 1-5", "2026-11-27T09:00", "2026-11-30T09:00"),
        ("0 9 * * MON", "2026-11-25T09:00", "2026-11-30T09:00"),
        ("30 8 1,15 * *", "2026-11-15T08:30", "2026-12-01T08:30"),
        ("0 0 29 feb *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 0 13 * 5", "2026-11-25T00:00", "2026-11-27T00:00"),
        ("0 0 * * 7", "2026-11-25T00:00", "2026-11-29T00:00"),
        ("59 23 31 12 *", "2026-12-31T23:59", "2027-12-31T23:59"),
        ("5/20 10-12/2 * * *", "2026-11-25T10:45", "2026-11-25T12:05"),
    ],
)
def test_the_next_minute_is_the_first_that_fits(expression: str, after: str, expected_minute: str) -> None:
    start = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert Cron(expression).find_next(start) == datetime.fromisoformat(expected_minute).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("* * * *", "has five fields"),
        ("0 * * * * *", "has five fields"),
        ("@daily", "has five fields"),
        ("60 * * * *", "minute: `60` is not from 0 to 59"),
        ("* * 0 * *", "day of the month: `0` is not from 1 to 31"),
        ("* * * * 8", "day of the week: `8` is not from 0 to 7"),
        ("5-1 * * * *", "ends before it begins"),
        ("*/0 * * * *", "a step is from 1 to 59"),
        ("x * * * *", "is not from 0 to 59"),
        ("1,,2 * * * *", "is not a number"),
        ("*-5 * * * *", "is not the end of a range"),
        ("٣ * * * *", "is not a number"),
        ("0 0 30 2 *", "a day that never comes"),
        ("1,1" * 90 + " * * * *", "has five fields"),
    ],
)
def test_an_invalid_expression_says_why(expression: str, message: str) -> None:
    with pytest.raises(CronInvalid, match=message):
        Cron(expression)


def test_the_latest_minute_within_a_time_is_found_or_there_is_none() -> None:
    noon = datetime(2026, 11, 25, 12, tzinfo=UTC)
    cron = Cron("*/5 * * * *")
    assert cron.find_latest(noon, noon + timedelta(minutes=14)) == noon + timedelta(minutes=10)
    assert cron.find_latest(noon, noon + timedelta(minutes=4)) is None


def _field(least: int, most: int) -> st.SearchStrategy[str]:
    numbers = st.integers(least, most)
    ranges = st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}")
    return st.just("*") | numbers.map(str) | ranges | st.lists(numbers.map(str), min_size=1, max_size=3).map(",".join)


def _expand(text: str, least: int, most: int) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(least, most + 1)) if part == "*" else set(range(int(first), int(last or first) + 1))
    return numbers


@given(_field(0, 59), _field(0, 23), _field(1, 28), _field(0, 6), st.integers(1_600_000_000, 1_900_000_000))
def test_no_minute_before_the_next_fits(minute: str, hour: str, day: str, weekday: str, since: int) -> None:
    after = datetime.fromtimestamp(since, UTC)
    days, weekdays = _expand(day, 1, 31), _expand(weekday, 0, 6)
    hours, minutes = _expand(hour, 0, 23), _expand(minute, 0, 59)

    def fits(at: datetime) -> bool:
        on_day, on_weekday = at.day in days, at.isoweekday() % 7 in weekdays
        either = on_day or on_weekday if "*" not in (day, weekday) else on_day and on_weekday
        return either and at.hour in hours and at.minute in minutes

    next_minute = Cron(f"{minute} {hour} {day} * {weekday}").find_next(after)
    assert next_minute > after
    assert fits(next_minute)
    # Days before it have no minute that fits, so that looking at each day's first hours and minutes is enough.
    at = next_minute - timedelta(minutes=1)
    while at > after and at > next_minute - timedelta(hours=30):
        assert not fits(at)
        at -= timedelta(minutes=1)
