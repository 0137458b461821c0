"""Deadlines in whole milliseconds. With floats, thirty seconds from now could round up to thirty-one."""

from __future__ import annotations

# About three hundred years. A longer ttl is cut to this, so that a deadline always fits 64 bits.
LONGEST_TTL = 10_000_000_000


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def window(ttl: int | None) -> int | None:
    """Returns the ttl as it is stored, from which `touch` restarts."""
    return None if ttl is None else min(ttl, LONGEST_TTL)


def deadline(now: int, window: int | None) -> int | None:
    return None if window is None else now + window * 1000


def is_live(expires: int | None, now: int) -> bool:
    return expires is None or expires > now


def seconds_left(expires: int, now: int) -> int:
    return -((now - expires) // 1000)
