"""Deadlines in whole milliseconds: with floats, thirty seconds from now could round up to thirty-one."""

from __future__ import annotations

# Some three hundred years. A longer ttl is cut to this, so that a deadline always fits 64 bit.
LONGEST_TTL = 10_000_000_000


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def window(ttl: int | None) -> int | None:
    """The ttl as it is kept: what `touch` will restart from."""
    return None if ttl is None else min(ttl, LONGEST_TTL)


def deadline(now: int, window: int | None) -> int | None:
    return None if window is None else now + window * 1000


def is_live(expires: int | None, now: int) -> bool:
    return expires is None or expires > now


def seconds_left(expires: int, now: int) -> int:
    return -((now - expires) // 1000)
