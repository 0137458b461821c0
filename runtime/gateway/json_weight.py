"""Estimates how long JSON takes to parse before it is parsed, because parsing holds up all other threads.

Eight megabytes of text take a few milliseconds, of numbers fifty, of brackets or names alone more than half a second.
"""

HEAVIEST = 2**20
"""The weight that takes a tenth of a second at the worst."""

_PER_TEXT_END, _PER_BRACKET = 5, 8
_LONG = 2**20
_NOUGHTS = bytes.maketrans(b"123456789", b"000000000")
_LONGEST_NUMBER = b"0" * 100


def is_heavy(raw: bytes) -> bool:
    """Returns whether the JSON is unusually slow to parse. Ordinary answers of the same size are much lighter."""
    weight = _PER_TEXT_END * raw.count(b'"') + _PER_BRACKET * (raw.count(b"[") + raw.count(b"{"))
    weight += raw.count(b",") + raw.count(b"\\")
    # Numbers of thousands of digits are slow to serialise. Short answers may contain some by chance.
    return weight > HEAVIEST or (len(raw) > _LONG and _LONGEST_NUMBER in raw.translate(_NOUGHTS))
