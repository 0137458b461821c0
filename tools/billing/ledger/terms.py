"""The terms of an organisation: what it may spend, in nano-dollars."""

from dataclasses import dataclass
from typing import Any

from baobab.tools.core.limits.money import USD, usd


@dataclass(frozen=True, slots=True)
class Terms:
    """allowance: what is given, None without a cap; once: for ever instead of each month; floor: at most 0."""

    allowance: int | None
    once: bool = False
    floor: int = 0


TERMS = {
    "playground": Terms(1 * USD, once=True),
    "launch": Terms(5 * USD),
    "certified": Terms(15 * USD),
    "enterprise": Terms(None),
}
"""The terms by plan."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of an organisation at one moment, in nano-dollars."""

    allowance: int | None
    """The rest of the allowance; None if it has no cap."""
    credits: int
    """The rest of the top-ups; negative if more was used."""
    reserved_nanos: int
    floor: int

    @property
    def total(self) -> int | None:
        return None if self.allowance is None else self.allowance + self.credits

    @property
    def available(self) -> int | None:
        """The amount that may be reserved; negative if the balance is below its floor."""
        return None if self.total is None else self.total - self.floor - self.reserved_nanos

    def as_details(self) -> dict[str, Any]:
        """Returns the fields of an answer, in dollars."""
        return {
            "balance_usd": _optional_usd(self.total),
            "credit_floor_usd": usd(self.floor),
            "available_usd": _optional_usd(None if self.available is None else max(0, self.available)),
            "monthly_allowance_usd": _optional_usd(self.allowance),
            "credits_usd": usd(self.credits),
            "reserved_usd": usd(self.reserved_nanos),
            "auto_refill_enabled": False,
            "auto_refill_amount_usd": None,
            "auto_refill_last_failure": None,
        }


def _optional_usd(nanos: int | None) -> float | None:
    return None if nanos is None else usd(nanos)
