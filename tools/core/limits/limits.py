"""Rate limits of tools: which bucket a call takes from, and how large the bucket is."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, ScopedKey
from baobab.tools.core.call import Call, Spent
from baobab.tools.core.limits.plans import Plan
from baobab.tools.core.limits.rate_limits import Allowance, Limiter, network, resolve_answer


@dataclass(frozen=True, slots=True)
class PerAddress:
    """A number of calls of one tool per client address; `per_app` counts each app separately."""

    amount: int
    window: int
    per_app: bool = False

    def spend(self, call: Call, arguments: Any) -> Spent:
        address = network(call.context.ip)
        subject = f"{call.app.id}:{address}" if self.per_app and call.app else address
        return call.services.limits.spend(call.tool.name, subject, self.amount, self.window)


def spend_of_app(call: Call, policy: str, amount: int, window: int, cost: int = 1) -> Spent:
    """Spends from a bucket of the call's app.

    Callers without a credential have a bucket of their own, as large as the app's, of which one address has half: they
    never spend what the app and its owners need.
    """
    app, limits = call.require_app(), call.services.limits
    if not isinstance(call.caller, Anonymous):
        return limits.spend(policy, app.id, amount, window, cost)
    share = max(cost, amount // 2)
    first = limits.spend(f"{policy}-visitor", f"{app.id}:{network(call.context.ip)}", share, window, cost)
    if isinstance(first, Allowance):
        return limits.spend(f"{policy}-visitors", app.id, amount, window, cost)
    return _spend_both(first, limits, f"{policy}-visitors", app.id, amount, window, cost)


async def _spend_both(
    first: Awaitable[Allowance], limits: Limiter, policy: str, subject: str, amount: int, window: int, cost: int
) -> Allowance:
    await first
    return await resolve_answer(limits.spend(policy, subject, amount, window, cost))


class AppRequests:
    """The bucket that all operations of one app share: by plan, per minute."""

    def spend(self, call: Call, arguments: Any) -> Spent:
        if call.app is None or call.app.plan.requests_per_minute is None:
            return None
        return spend_of_app(call, "app", call.app.plan.requests_per_minute, 60)


class CallerRequests:
    """The bucket of operations that name no app: per caller, or per address for callers without a name.

    All keys of an organisation have one together besides: it may have many, and each is its own credential.
    """

    amount = 600
    of_organisation = 6000

    def spend(self, call: Call, arguments: Any) -> Spent:
        return self.spend_of(call.caller, call.context.ip, call.services.limits)

    def spend_of(self, caller: Caller, ip: str, limits: Limiter) -> Spent:
        """Takes one request, also for requests that call no tool."""
        subject = _whose(caller, ip)
        if isinstance(caller, (Account, ScopedKey)) and caller.key_id is not None:
            first = limits.spend("organisation", caller.organisation_id, self.of_organisation, 60)
            if not isinstance(first, Allowance):
                return _spend_both(first, limits, "caller", subject, self.amount, 60, 1)
        return limits.spend("caller", subject, self.amount, 60)


@dataclass(frozen=True, slots=True)
class PlanRequests:
    """The bucket that some operations of an organisation share, of all its people and keys: by plan, per minute.

    policy: the bucket's name. Operations that name an app are in the app's bucket; users of apps have their own.
    """

    policy: str

    def spend(self, call: Call, arguments: Any) -> Spent:
        caller = call.caller
        if call.app is not None:
            return APP_REQUESTS.spend(call, arguments)
        if isinstance(caller, AppKey):
            return self._spend_of_app(call, caller.app_id)
        if not isinstance(caller, (Account, ScopedKey)):
            return CALLER_REQUESTS.spend(call, arguments)
        plan = call.services.directory.cached_plan(caller.organisation_id)
        if plan is None:
            return self._spend_later(call, caller.organisation_id)
        return self._spend(call, caller.organisation_id, plan)

    async def _spend_of_app(self, call: Call, app_id: str) -> Any:
        return await self._spend_later(call, (await call.services.directory.app(app_id)).organisation_id)

    async def _spend_later(self, call: Call, organisation_id: str) -> Any:
        outcome = self._spend(call, organisation_id, await call.services.directory.plan(organisation_id))
        return await outcome if isinstance(outcome, Awaitable) else outcome

    def _spend(self, call: Call, organisation_id: str, plan: Plan) -> Spent:
        if plan.requests_per_minute is None:
            return None
        return call.services.limits.spend(self.policy, organisation_id, plan.requests_per_minute, 60)


@dataclass(frozen=True, slots=True)
class PerOrganisation:
    """A number of calls of one tool by all people and keys of an organisation together."""

    amount: int
    window: int

    def spend(self, call: Call, arguments: Any) -> Spent:
        caller = call.caller
        subject = (
            caller.organisation_id if isinstance(caller, (Account, ScopedKey)) else _whose(caller, call.context.ip)
        )
        return call.services.limits.spend(call.tool.name, subject, self.amount, self.window)


def _whose(caller: Caller, ip: str) -> str:
    return network(ip) if isinstance(caller, Anonymous) else caller.actor_id or ""


APP_REQUESTS = AppRequests()
CALLER_REQUESTS = CallerRequests()
GATEWAY_REQUESTS, APPROVAL_REQUESTS = PlanRequests("gateway"), PlanRequests("approvals")
