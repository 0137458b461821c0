"""The clock and the source of identifiers. They are injected everywhere, so that tests can control them."""

import base64
import secrets
import string
import time as system
import uuid
from datetime import UTC, datetime
from typing import Protocol

_BASE36 = string.digits + string.ascii_lowercase
_BASE62 = string.digits + string.ascii_letters
_CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")
"""The digits of a ULID in the place of those of base 32."""


class Clock(Protocol):
    """Tells the time."""

    def time(self) -> float:
        """Seconds since the epoch."""

    def now(self) -> datetime:
        """Returns the same instant as an aware datetime in UTC."""

    def monotonic(self) -> float:
        """Seconds of a clock that never jumps, for measuring durations."""


class SystemClock:
    # The functions themselves, without a wrapper, because each call of a tool uses them several times.
    time = staticmethod(system.time)
    monotonic = staticmethod(system.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)


class Ids:
    """Random identifiers; every secret comes from the operating system."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def uuid_at(self, now: datetime) -> str:
        """Builds a UUID of version 7: milliseconds since 1970, so that it sorts by the time, then random bits."""
        moment = f"{int(now.timestamp() * 1000):012x}"
        return f"{moment[:8]}-{moment[8:]}-7{self.uuid()[15:]}"

    def app(self) -> str:
        return "app_" + self.base36(12)

    def base36(self, length: int) -> str:
        return _draw(_BASE36, length)

    def secret(self, length: int) -> str:
        """Returns a string of `length` letters and digits, with 5.95 bits of entropy each."""
        return _draw(_BASE62, length)

    def ulid(self, at: float) -> str:
        """Returns a ULID: 26 characters that sort by the time `at`, in seconds since the epoch, and end at random."""
        number = int(at * 1000) << 80 | secrets.randbits(80)
        # Base 32 of twenty bytes has six digits more, which are zeros: a number of sixteen begins with them.
        return base64.b32encode(number.to_bytes(20)).translate(_CROCKFORD)[6:].decode()

    def hex(self, length: int) -> str:
        return secrets.token_hex(length // 2)


def _draw(alphabet: str, length: int) -> str:
    """Returns characters that are drawn evenly: one random number serves for all of them."""
    # 64 bits more than needed, so that the remainder favours no character noticeably.
    number = secrets.randbits(length * 6 + 64)
    characters = []
    for _ in range(length):
        number, index = divmod(number, len(alphabet))
        characters.append(alphabet[index])
    return "".join(characters)
