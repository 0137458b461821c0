"""Digests and quiet hours, against a model that looks at each minute."""

from datetime import UTC, datetime, time, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from baobab.tools.approvals.notices.schedule import QuietHours, find_due

ZONES = st.sampled_from(["UTC", "Europe/Prague", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
TIMES = st.builds(time, st.integers(0, 23), st.sampled_from([0, 15, 30]))
# The days on which clocks are set are among them.
_MARCH = datetime(2026, 3, 1, tzinfo=UTC)
MOMENTS = st.integers(0, 275 * 24 * 60).map(lambda minutes: _MARCH + timedelta(minutes=minutes))


def is_quiet(quiet: QuietHours, moment: datetime) -> bool:
    at = moment.astimezone(quiet.zone).time()
    if quiet.begin < quiet.end:
        return quiet.begin <= at < quiet.end
    return at >= quiet.begin or at < quiet.end


@given(ZONES, TIMES, TIMES, MOMENTS)
def test_quiet_hours_end_at_the_first_minute_that_is_not_quiet(
    zone: str, begin: time, end: time, moment: datetime
) -> None:
    quiet = QuietHours(begin, end, ZoneInfo(zone))
    if begin == end:
        return
    expected_end = moment
    while is_quiet(quiet, expected_end):
        expected_end += timedelta(minutes=1)
    assert quiet.find_end(moment) == expected_end


@given(MOMENTS, st.integers(1, 1440))
def test_a_digest_is_due_after_now_and_within_its_length(moment: datetime, minutes: int) -> None:
    row = SimpleNamespace(digest_minutes=minutes, quiet_from=None)
    due = find_due(moment, row)
    assert moment < due <= moment + timedelta(minutes=minutes)
    assert find_due(due - timedelta(seconds=1), row) == due
