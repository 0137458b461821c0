"""Rate limits: counting how often something is done. Exact under concurrency within one store of counts."""

import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable
from dataclasses import dataclass
from ipaddress import IPv6Network
from typing import Protocol, TypeVar

from baobab.storage.clock import Clock
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.windows import SlidingWindows
from baobab.tools.core.errors import RateLimited

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_WINDOWS = 100_000


@dataclass(slots=True)
class Allowance:
    """The rest of a window of a limit, which interfaces report to their callers."""

    policy: str
    limit: int
    remaining: int
    window: int
    reset: int
    """Whole seconds until something is free again."""


class Limiter(Protocol):
    """Limits by moving windows: in any `window` seconds exactly `amount` may pass.

    A limiter that counts in this process answers at once, so that the hot path has nothing to await.
    """

    def spend(
        self, policy: str, subject: str, amount: int, window: int, cost: int = 1
    ) -> Allowance | Awaitable[Allowance]:
        """Takes `cost` of `amount` per `window` seconds. Raises RateLimited, and then takes nothing."""
        ...

    def count_used(self, policy: str, subject: str, amount: int, window: int) -> int | Awaitable[int]:
        """Returns how much of the window is taken now."""
        ...


async def resolve_answer(answer: T | Awaitable[T]) -> T:
    """Returns the answer of a limiter, awaiting it if needed."""
    return await answer if isinstance(answer, Awaitable) else answer


class RateLimits:
    """A limiter that counts in this process; each worker counts for itself."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._windows: dict[tuple[str, str, int, int], deque[float]] = {}

    def spend(self, policy: str, subject: str, amount: int, window: int, cost: int = 1) -> Allowance:
        now = self._now()
        moments = self._live_window(policy, subject, amount, window, now)
        remaining = amount - len(moments) - cost
        if remaining < 0:
            raise RateLimited(
                math.ceil(moments[-remaining - 1] + window - now) if -remaining <= len(moments) else window,
                amount,
                window,
            )
        if cost == 1:
            moments.append(now)
        else:
            moments.extend([now] * cost)
        return Allowance(policy, amount, remaining, window, math.ceil(moments[0] + window - now))

    def count_used(self, policy: str, subject: str, amount: int, window: int) -> int:
        return len(self._live_window(policy, subject, amount, window, self._now()))

    def _live_window(self, policy: str, subject: str, amount: int, window: int, now: float) -> deque[float]:
        """Returns the times at which the requests that still count were taken, oldest first."""
        name = (policy, subject, amount, window)
        moments = self._windows.get(name)
        if moments is None:
            if len(self._windows) >= _MOST_WINDOWS:
                self._forget_idle(now)
            moments = self._windows[name] = deque()
        oldest = now - window
        while moments and moments[0] <= oldest:
            moments.popleft()
        return moments

    def _forget_idle(self, now: float) -> None:
        """Drops windows in which nothing counts any more. If there are too many, drops the oldest of the policy that
        has the most, so that a flood only displaces its own.
        """
        self._windows = {
            name: moments for name, moments in self._windows.items() if moments and moments[-1] > now - name[3]
        }
        excess = len(self._windows) - _MOST_WINDOWS // 2
        if excess > 0:
            flooded_policy = Counter(name[0] for name in self._windows).most_common(1)[0][0]
            for name in [name for name in self._windows if name[0] == flooded_policy][:excess]:
                del self._windows[name]


class SharedRateLimits:
    """Counted on a Valkey server, for all workers together.

    While it does not answer, each worker counts by itself, from nothing: nobody is refused for our failure, and
    nobody passes unlimited.
    """

    def __init__(self, windows: SlidingWindows, clock: Clock) -> None:
        self._windows = windows
        self._local_limits = RateLimits(clock)
        self._is_alone = False

    async def spend(self, policy: str, subject: str, amount: int, window: int, cost: int = 1) -> Allowance:
        try:
            remaining, wait = await self._windows.take(_name(policy, subject, amount, window), amount, window, cost)
        except ValkeyUnavailable as exc:
            self._fall_back(exc)
            return self._local_limits.spend(policy, subject, amount, window, cost)
        self._rejoin()
        if remaining < 0:
            raise RateLimited(wait, amount, window)
        return Allowance(policy, amount, remaining, window, wait)

    async def count_used(self, policy: str, subject: str, amount: int, window: int) -> int:
        try:
            return await self._windows.count_used(_name(policy, subject, amount, window), window)
        except ValkeyUnavailable as exc:
            self._fall_back(exc)
            return self._local_limits.count_used(policy, subject, amount, window)

    def _fall_back(self, exc: ValkeyUnavailable) -> None:
        if not self._is_alone:
            self._is_alone = True
            _log.warning("rate limits are counted by each worker for itself: Valkey does not answer (%s)", exc.reason)

    def _rejoin(self) -> None:
        if self._is_alone:
            self._is_alone = False
            _log.warning("rate limits are counted on Valkey again")


def _name(policy: str, subject: str, amount: int, window: int) -> str:
    return f"rate:{policy}:{amount}:{window}:{subject}"


class Remaining:
    """A limiter that only looks: it raises RateLimited where nothing is left, and takes nothing."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def spend(self, policy: str, subject: str, amount: int, window: int, cost: int = 1) -> Allowance:
        remaining = amount - await self.count_used(policy, subject, amount, window)
        if remaining < cost:
            raise RateLimited(window, amount, window)
        return Allowance(policy, amount, remaining, window, window)

    async def count_used(self, policy: str, subject: str, amount: int, window: int) -> int:
        return await resolve_answer(self._limiter.count_used(policy, subject, amount, window))


def network(address: str) -> str:
    """Returns what counts as one client: an IPv4 address, or the /64 network that one IPv6 customer has."""
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
