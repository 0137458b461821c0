"""The clock and the source of identifiers. They are injected everywhere, so that tests can control them."""

import secrets
import string
import time as system
import uuid
from datetime import UTC, datetime
from typing import Protocol

_BASE36 = string.digits + string.ascii_lowercase
_BASE62 = string.digits + string.ascii_letters


class Clock(Protocol):
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

    def app(self) -> str:
        return "app_" + self.base36(12)

    def base36(self, length: int) -> str:
        return "".join(secrets.choice(_BASE36) for _ in range(length))

    def secret(self, length: int) -> str:
        """Returns a string of `length` letters and digits, with 5.95 bits of entropy each."""
        return "".join(secrets.choice(_BASE62) for _ in range(length))

    def hex(self, length: int) -> str:
        return secrets.token_hex(length // 2)
