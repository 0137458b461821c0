"""Rate limits: how often something may be done. Exact under concurrency within one store of counts."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from baobab.tools.callers import Anonymous
from baobab.tools.errors import RateLimited

if TYPE_CHECKING:
    from baobab.tools.call import Call


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left in a window: doors tell it to callers."""

    policy: str
    limit: int
    remaining: int
    window: int
    reset: int
    """Whole seconds until something is free again."""


class RateLimits:
    """Moving windows, counted in this process."""

    def __init__(self) -> None:
        self._strategy = MovingWindowRateLimiter(MemoryStorage())
        self._items: dict[tuple[int, int], RateLimitItemPerSecond] = {}

    def spend(self, policy: str, subject: str, amount: int, window: int, cost: int = 1) -> Allowance:
        """Take `cost` of `amount` per `window` seconds, or raise RateLimited and take nothing."""
        item = self._items.get((amount, window))
        if item is None:
            item = self._items[amount, window] = RateLimitItemPerSecond(amount, window)
        allowed = self._strategy.hit(item, policy, subject, cost=cost)
        reset_at, remaining = self._strategy.get_window_stats(item, policy, subject)
        reset = max(1, min(window, round(reset_at - time.time() + 0.5)))
        if not allowed:
            raise RateLimited(reset, amount, window)
        return Allowance(policy, amount, remaining, window, reset)

    def used(self, policy: str, subject: str, amount: int, window: int) -> int:
        """How much of the window is taken now."""
        item = RateLimitItemPerSecond(amount, window)
        return amount - self._strategy.get_window_stats(item, policy, subject)[1]


class Limit(Protocol):
    """Asked once per call, after the caller is authorised and before its arguments are looked at."""

    def spend(self, call: "Call", arguments: Any) -> Allowance | None: ...


@dataclass(frozen=True, slots=True)
class PerAddress:
    """So many calls of one tool per client address; `per_app` counts each app by itself."""

    amount: int
    window: int
    per_app: bool = False

    def spend(self, call: "Call", arguments: Any) -> Allowance | None:
        subject = f"{call.app.id}:{call.door.ip}" if self.per_app and call.app else call.door.ip
        return call.services.limits.spend(call.tool.name, subject, self.amount, self.window)


class AppRequests:
    """The bucket that all operations of one app share: by plan, per minute."""

    def spend(self, call: "Call", arguments: Any) -> Allowance | None:
        if call.app is None or call.app.plan.requests_per_minute is None:
            return None
        return call.services.limits.spend("app", call.app.id, call.app.plan.requests_per_minute, 60)


class CallerRequests:
    """The bucket of operations that name no app: per caller, or per address for callers without a name."""

    amount = 600

    def spend(self, call: "Call", arguments: Any) -> Allowance | None:
        caller = call.caller
        subject = call.door.ip if isinstance(caller, Anonymous) else caller.actor_id or call.door.ip
        return call.services.limits.spend("caller", subject, self.amount, 60)


APP_REQUESTS = AppRequests()
CALLER_REQUESTS = CallerRequests()
