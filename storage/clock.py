"""The clock and the source of identifiers, injected everywhere so that tests hold them still."""

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
        """The same instant, with its zone (UTC)."""

    def monotonic(self) -> float:
        """Seconds of a clock that never jumps, for measuring how long something took or how often it happened."""


class SystemClock:
    # The functions themselves: they are asked several times in each call.
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
        """A string of `length` letters and digits: 5.95 bits each."""
        return "".join(secrets.choice(_BASE62) for _ in range(length))

    def hex(self, length: int) -> str:
        return secrets.token_hex(length // 2)
