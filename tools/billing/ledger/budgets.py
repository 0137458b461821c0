"""Budgets: what one app, key or agent may spend in a day or a month (UTC), within what its organisation has."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from baobab.tools.core.limits.money import usd

BudgetSubject = Literal["app", "key", "agent"]
BudgetPeriod = Literal["day", "month"]


def first_day(period: BudgetPeriod, today: date) -> date:
    return today if period == "day" else today.replace(day=1)


@dataclass(slots=True)
class Budget:
    """most, spent and reserved are nano-dollars; `since` is the first day of the period that `spent` is about."""

    organisation_id: str
    subject: BudgetSubject
    subject_id: str
    period: BudgetPeriod
    most: int
    since: date
    spent_nanos: int
    reserved_nanos: int

    def roll(self, today: date) -> None:
        """Begins the period of this day; never an earlier one, for another machine's clock may be ahead."""
        since = first_day(self.period, today)
        if since > self.since:
            self.since, self.spent_nanos = since, 0

    def fits(self, amount: int) -> bool:
        return self.spent_nanos + self.reserved_nanos + amount <= self.most

    @property
    def resets_at(self) -> datetime:
        # 32 days after a month's first one are in the next month, whatever its length.
        following = first_day(self.period, self.since + timedelta(days=1 if self.period == "day" else 32))
        return datetime(following.year, following.month, following.day, tzinfo=UTC)

    def as_details(self) -> dict[str, Any]:
        """Returns the fields of an answer, in dollars."""
        return {
            "subject": self.subject,
            "subject_id": self.subject_id,
            "period": self.period,
            "limit_usd": usd(self.most),
            "spent_usd": usd(self.spent_nanos),
            "reserved_usd": usd(self.reserved_nanos),
            "resets_at": self.resets_at.isoformat(),
        }
