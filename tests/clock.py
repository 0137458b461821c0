"""A clock that tests hold still and move on by hand."""

from datetime import UTC, datetime


class FixedClock:
    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self._at = at

    def time(self) -> float:
        return self._at

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._at, UTC)

    def monotonic(self) -> float:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += seconds
