"""Reads dates, times and durations from texts into the one form that both databases keep and answer.

Each function takes the text of a request and raises ValueError for one that it cannot read.
"""

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

_DURATION = re.compile(
    r"P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?"
)
_INTERVAL_PARTS = re.compile(
    r"([+-]?\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)|([+-]?)(\d{1,9}):(\d{2})(?::(\d{2}(?:\.\d{1,6})?))?", re.I
)
_UNITS = {
    "year": (12, 0, 0),
    "mon": (1, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3600),
    "minute": (0, 0, 60),
    "min": (0, 0, 60),
    "second": (0, 0, 1),
    "sec": (0, 0, 1),
}


def read_date(text: str) -> str:
    """Reads a date, such as `2026-11-27`."""
    return date.fromisoformat(text).isoformat()


def read_instant(text: str) -> str:
    """Reads a moment in UTC, such as `2026-11-27T13:45:00+00:00`. A text without a zone is taken as UTC."""
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return _without_zeros(moment.replace(tzinfo=None).isoformat()) + "+00:00"


def shift_moment(text: str, seconds: int) -> str:
    """Returns the moment that many seconds after another one, in the same form."""
    return read_instant((datetime.fromisoformat(text) + timedelta(seconds=seconds)).isoformat())


def read_timestamp(text: str) -> str:
    """Reads a date and time without a zone. A zone in the text is dropped, as Postgres does."""
    return _without_zeros(datetime.fromisoformat(text).replace(tzinfo=None).isoformat())


def _without_zeros(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def read_time(text: str) -> str:
    """Reads a time of day without a zone, such as `13:45:00`."""
    return _without_zeros(time.fromisoformat(text).replace(tzinfo=None).isoformat())


def read_time_with_zone(text: str) -> str:
    """Reads a time of day with its zone, such as `13:45:00+02`. A text without a zone is taken as UTC."""
    moment = time.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    plain = _without_zeros(moment.replace(tzinfo=None).isoformat())
    zone = moment.isoformat()[len(moment.replace(tzinfo=None).isoformat()) :]
    return plain + zone.removesuffix(":00")


def read_interval(text: str) -> str:
    """Reads a duration as Postgres writes it, such as `1 year 2 mons 3 days 04:05:06`."""
    months, days, seconds = _parse_interval(text.strip())
    years, months = int(math.copysign(abs(months) // 12, months)), int(math.copysign(abs(months) % 12, months))
    parts = [
        f"{count} {unit}{'' if count == 1 else 's'}"
        for count, unit in ((years, "year"), (months, "mon"), (days, "day"))
        if count
    ]
    if seconds or not parts:
        size = abs(seconds)
        whole = int(size)
        fraction = format((size - whole).normalize(), "f")[1:] if size != whole else ""
        sign = "-" if seconds < 0 else ""
        parts.append(f"{sign}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{fraction}")
    return " ".join(parts)


def _parse_interval(text: str) -> tuple[int, int, Decimal]:
    """Returns months, days and seconds of a duration in the notation of ISO 8601 or of Postgres."""
    match = _DURATION.fullmatch(text)
    if match and any(match.groups()):
        years, months, weeks, days, hours, minutes = (int(part or 0) for part in match.groups()[:6])
        return years * 12 + months, weeks * 7 + days, hours * 3600 + minutes * 60 + Decimal(match[7] or 0)
    months, days, seconds, index = 0, 0, Decimal(0), 0
    for part in _INTERVAL_PARTS.finditer(text):
        if text[index : part.start()].strip(" ,"):
            raise ValueError("it is not a duration such as `1 day 02:30:00` or `P1DT2H30M`")
        index = part.end()
        if part[2]:
            unit = _UNITS.get(part[2].lower()) or _UNITS.get(part[2].lower().removesuffix("s"))
            amount = Decimal(part[1])
            if unit is None or (not unit[2] and amount != int(amount)):
                raise ValueError(f"`{part[0]}` is not a part of a duration")
            months, days, seconds = (
                months + unit[0] * int(amount),
                days + unit[1] * int(amount),
                seconds + unit[2] * amount,
            )
        else:
            clock = int(part[4]) * 3600 + int(part[5]) * 60 + Decimal(part[6] or 0)
            seconds += -clock if part[3] == "-" else clock
    if not index or text[index:].strip():
        raise ValueError("it is not a duration such as `1 day 02:30:00` or `P1DT2H30M`")
    return months, days, seconds
