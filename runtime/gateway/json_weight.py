"""How long JSON takes to read, told before it is: while it is read nobody else has a turn, in whichever thread that is.

Eight megabytes of text take some milliseconds, of numbers fifty, of nothing but brackets or names more than half a
second.
"""

HEAVIEST = 2**20
"""What takes a tenth of a second at the worst."""

_PER_TEXT_END, _PER_BRACKET = 5, 8
_LONG = 2**20
_NOUGHTS = bytes.maketrans(b"123456789", b"000000000")
_LONGEST_NUMBER = b"0" * 100


def is_heavy(raw: bytes) -> bool:
    """Whether this has been made to take time; honest answers of as many bytes are much lighter."""
    weight = _PER_TEXT_END * raw.count(b'"') + _PER_BRACKET * (raw.count(b"[") + raw.count(b"{"))
    weight += raw.count(b",") + raw.count(b"\\")
    # Numbers of thousands of digits are slow to write again. A text may have some, but hardly one in megabytes.
    return weight > HEAVIEST or (len(raw) > _LONG and _LONGEST_NUMBER in raw.translate(_NOUGHTS))
