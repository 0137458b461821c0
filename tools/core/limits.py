"""Rate limits: how often something may be done. Exact under concurrency within one store of counts."""

import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable
from dataclasses import dataclass
from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from baobab.storage.clock import Clock
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.windows import Windows
from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, ScopedKey
from baobab.tools.core.errors import RateLimited
from baobab.tools.core.plans import Plan

if TYPE_CHECKING:
    from baobab.tools.core.call import Call

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_WINDOWS = 100_000


@dataclass(slots=True)
class Allowance:
    """What is left in a window: doors tell it to callers."""

    policy: str
    limit: int
    remaining: int
    window: int
    reset: int
    """Whole seconds until something is free again."""


class Limiter(Protocol):
    """Moving windows: in any `window` seconds at most `amount` pass, to the one.

    What is counted in this process is answered at once, so that the hot path has nothing to await.
    """

    def spend(
        self, policy: str, subject: str, amount: int, window: int, cost: int = 1
    ) -> Allowance | Awaitable[Allowance]:
        """Take `cost` of `amount` per `window` seconds, or raise RateLimited and take nothing."""
        ...

    def used(self, policy: str, subject: str, amount: int, window: int) -> int | Awaitable[int]:
        """How much of the window is taken now."""
        ...


async def settled(answer: T | Awaitable[T]) -> T:
    """What a limiter answers, whichever it is."""
    return await answer if isinstance(answer, Awaitable) else answer


class RateLimits:
    """Counted in this process: other workers count by themselves."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._windows: dict[tuple[str, str, int, int], deque[float]] = {}

    def spend(self, policy: str, subject: str, amount: int, window: int, cost: int = 1) -> Allowance:
        now = self._now()
        taken = self._taken(policy, subject, amount, window, now)
        left = amount - len(taken) - cost
        if left < 0:
            raise RateLimited(
                math.ceil(taken[-left - 1] + window - now) if -left <= len(taken) else window, amount, window
            )
        if cost == 1:
            taken.append(now)
        else:
            taken.extend([now] * cost)
        return Allowance(policy, amount, left, window, math.ceil(taken[0] + window - now))

    def used(self, policy: str, subject: str, amount: int, window: int) -> int:
        return len(self._taken(policy, subject, amount, window, self._now()))

    def _taken(self, policy: str, subject: str, amount: int, window: int, now: float) -> deque[float]:
        """When each of what still counts was taken, oldest first."""
        name = (policy, subject, amount, window)
        taken = self._windows.get(name)
        if taken is None:
            if len(self._windows) >= _MOST_WINDOWS:
                self._forget_idle(now)
            taken = self._windows[name] = deque()
        oldest = now - window
        while taken and taken[0] <= oldest:
            taken.popleft()
        return taken

    def _forget_idle(self, now: float) -> None:
        """Drop what no longer counts. A flood is of one policy: it takes places from its own, longest known first.

        So a flood of addresses cannot make another policy forget what it guards.
        """
        self._windows = {name: taken for name, taken in self._windows.items() if taken and taken[-1] > now - name[3]}
        excess = len(self._windows) - _MOST_WINDOWS // 2
        if excess > 0:
            flooded = Counter(name[0] for name in self._windows).most_common(1)[0][0]
            for name in [name for name in self._windows if name[0] == flooded][:excess]:
                del self._windows[name]


class SharedRateLimits:
    """Counted on a Valkey server, for all workers together.

    While it does not answer, each worker counts by itself, from nothing: nobody is refused for our failure, and
    nobody passes unlimited.
    """

    def __init__(self, windows: Windows, clock: Clock) -> None:
        self._windows = windows
        self._own = RateLimits(clock)
        self._alone = False

    async def spend(self, policy: str, subject: str, amount: int, window: int, cost: int = 1) -> Allowance:
        try:
            left, wait = await self._windows.take(_name(policy, subject, amount, window), amount, window, cost)
        except ValkeyUnavailable as exc:
            self._part(exc)
            return self._own.spend(policy, subject, amount, window, cost)
        self._rejoin()
        if left < 0:
            raise RateLimited(wait, amount, window)
        return Allowance(policy, amount, left, window, wait)

    async def used(self, policy: str, subject: str, amount: int, window: int) -> int:
        try:
            return await self._windows.used(_name(policy, subject, amount, window), window)
        except ValkeyUnavailable as exc:
            self._part(exc)
            return self._own.used(policy, subject, amount, window)

    def _part(self, exc: ValkeyUnavailable) -> None:
        if not self._alone:
            self._alone = True
            _log.warning("rate limits are counted by each worker for itself: Valkey does not answer (%s)", exc.reason)

    def _rejoin(self) -> None:
        if self._alone:
            self._alone = False
            _log.warning("rate limits are counted on Valkey again")


def _name(policy: str, subject: str, amount: int, window: int) -> str:
    return f"rate:{policy}:{amount}:{window}:{subject}"


class Remaining:
    """A limiter that only looks: it raises RateLimited where nothing is left, and takes nothing."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def spend(self, policy: str, subject: str, amount: int, window: int, cost: int = 1) -> Allowance:
        left = amount - await self.used(policy, subject, amount, window)
        if left < cost:
            raise RateLimited(window, amount, window)
        return Allowance(policy, amount, left, window, window)

    async def used(self, policy: str, subject: str, amount: int, window: int) -> int:
        return await settled(self._limiter.used(policy, subject, amount, window))


# None where nothing is limited.
Spent = Allowance | None | Awaitable[Allowance]


class Limit(Protocol):
    """Asked once per call, after the caller is authorised and before its arguments are looked at."""

    def spend(self, call: "Call", arguments: Any) -> Spent: ...


@dataclass(frozen=True, slots=True)
class PerAddress:
    """So many calls of one tool per client address; `per_app` counts each app by itself."""

    amount: int
    window: int
    per_app: bool = False

    def spend(self, call: "Call", arguments: Any) -> Spent:
        address = network(call.door.ip)
        subject = f"{call.app.id}:{address}" if self.per_app and call.app else address
        return call.services.limits.spend(call.tool.name, subject, self.amount, self.window)


def spend_of_app(call: "Call", policy: str, amount: int, window: int, cost: int = 1) -> Spent:
    """Take from a bucket of the call's app.

    Callers without a credential have one of their own, as large as the app's, of which an address has half: they never
    spend what the app and those who run it need.
    """
    app, limits = call.require_app(), call.services.limits
    if not isinstance(call.caller, Anonymous):
        return limits.spend(policy, app.id, amount, window, cost)
    share = max(cost, amount // 2)
    first = limits.spend(f"{policy}-visitor", f"{app.id}:{network(call.door.ip)}", share, window, cost)
    if isinstance(first, Allowance):
        return limits.spend(f"{policy}-visitors", app.id, amount, window, cost)
    return _spend_both(first, limits, f"{policy}-visitors", app.id, amount, window, cost)


async def _spend_both(
    first: Awaitable[Allowance], limits: Limiter, policy: str, subject: str, amount: int, window: int, cost: int
) -> Allowance:
    await first
    return await settled(limits.spend(policy, subject, amount, window, cost))


class AppRequests:
    """The bucket that all operations of one app share: by plan, per minute."""

    def spend(self, call: "Call", arguments: Any) -> Spent:
        if call.app is None or call.app.plan.requests_per_minute is None:
            return None
        return spend_of_app(call, "app", call.app.plan.requests_per_minute, 60)


class CallerRequests:
    """The bucket of operations that name no app: per caller, or per address for callers without a name.

    All keys of an organisation have one together besides: it may have many, and each is its own credential.
    """

    amount = 600
    of_organisation = 6000

    def spend(self, call: "Call", arguments: Any) -> Spent:
        caller, limits, whose = call.caller, call.services.limits, _whose(call)
        if isinstance(caller, (Account, ScopedKey)) and caller.key_id is not None:
            first = limits.spend("organisation", caller.organisation_id, self.of_organisation, 60)
            if not isinstance(first, Allowance):
                return _spend_both(first, limits, "caller", whose, self.amount, 60, 1)
        return limits.spend("caller", whose, self.amount, 60)


@dataclass(frozen=True, slots=True)
class PlanRequests:
    """The bucket that some operations of an organisation share, of all its people and keys: by plan, per minute.

    policy: the bucket's name. Operations that name an app are in the app's bucket; users of apps have their own.
    """

    policy: str

    def spend(self, call: "Call", arguments: Any) -> Spent:
        caller = call.caller
        if call.app is not None:
            return APP_REQUESTS.spend(call, arguments)
        if isinstance(caller, AppKey):
            return self._spend_of_app(call, caller.app_id)
        if not isinstance(caller, (Account, ScopedKey)):
            return CALLER_REQUESTS.spend(call, arguments)
        plan = call.services.directory.held_plan(caller.organisation_id)
        if plan is None:
            return self._spend_later(call, caller.organisation_id)
        return self._spend(call, caller.organisation_id, plan)

    async def _spend_of_app(self, call: "Call", app_id: str) -> Any:
        return await self._spend_later(call, (await call.services.directory.app(app_id)).organisation_id)

    async def _spend_later(self, call: "Call", organisation_id: str) -> Any:
        spent = self._spend(call, organisation_id, await call.services.directory.plan(organisation_id))
        return await spent if isinstance(spent, Awaitable) else spent

    def _spend(self, call: "Call", organisation_id: str, plan: Plan) -> Spent:
        if plan.requests_per_minute is None:
            return None
        return call.services.limits.spend(self.policy, organisation_id, plan.requests_per_minute, 60)


@dataclass(frozen=True, slots=True)
class PerOrganisation:
    """So many calls of one tool by the people and keys of an organisation together."""

    amount: int
    window: int

    def spend(self, call: "Call", arguments: Any) -> Spent:
        caller = call.caller
        whose = caller.organisation_id if isinstance(caller, (Account, ScopedKey)) else _whose(call)
        return call.services.limits.spend(call.tool.name, whose, self.amount, self.window)


def _whose(call: "Call") -> str:
    return network(call.door.ip) if isinstance(call.caller, Anonymous) else call.caller.actor_id or ""


APP_REQUESTS = AppRequests()
CALLER_REQUESTS = CallerRequests()
GATEWAY_REQUESTS, APPROVAL_REQUESTS = PlanRequests("gateway"), PlanRequests("approvals")


def network(address: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 that one IPv6 customer holds whole."""
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
