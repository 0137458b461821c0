"""How often models may be asked outside of an app."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from baobab.tools.callers import Account, ScopedKey
from baobab.tools.limits import APP_REQUESTS, Spent
from baobab.tools.plans import Plan

if TYPE_CHECKING:
    from baobab.tools.call import Call


class GatewayRequests:
    """The bucket that an organisation's calls of models share: by plan, per minute. An app's keys have the app's."""

    def spend(self, call: "Call", arguments: Any) -> Spent:
        if call.app is not None:
            return APP_REQUESTS.spend(call, arguments)
        caller = call.caller
        assert isinstance(caller, (Account, ScopedKey))
        plan = call.services.directory.held_plan(caller.organisation_id)
        if plan is None:
            return self._spend_later(call, caller.organisation_id)
        return self._spend(call, caller.organisation_id, plan)

    async def _spend_later(self, call: "Call", organisation_id: str) -> Any:
        spent = self._spend(call, organisation_id, await call.services.directory.plan(organisation_id))
        return await spent if isinstance(spent, Awaitable) else spent

    def _spend(self, call: "Call", organisation_id: str, plan: Plan) -> Spent:
        if plan.requests_per_minute is None:
            return None
        return call.services.limits.spend("gateway", organisation_id, plan.requests_per_minute, 60)


GATEWAY_REQUESTS = GatewayRequests()
