"""Adds to a stored JSON integer."""

from __future__ import annotations

import re

from baobab.storage.kv.errors import IntegerOverflow, NotAnInteger

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LONGEST = len(str(_LOWEST))


def add(stored: bytes | None, by: int) -> int:
    """Returns the sum; None counts as 0. Raises NotAnInteger or IntegerOverflow."""
    if stored is None:
        total = by
    elif _INTEGER.fullmatch(stored) is None:
        raise NotAnInteger
    elif len(stored) > _LONGEST:
        # No 64-bit step leads back into the range, and int() refuses thousands of digits.
        raise IntegerOverflow
    else:
        total = int(stored) + by
    if not _LOWEST <= total <= _HIGHEST:
        raise IntegerOverflow
    return total
