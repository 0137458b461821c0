"""Operations per second: a plan's cap, one bucket for each app."""

from typing import TYPE_CHECKING, Any

from baobab.tools.core.call import Spent
from baobab.tools.core.limits import spend_of_app

if TYPE_CHECKING:
    from baobab.tools.core.call import Call

POLICY = "kv"


class KvOperations:
    """A batch costs its operations, but never more than a whole second: else a small plan could not send a full one."""

    def spend(self, call: "Call", arguments: Any) -> Spent:
        app = call.require_app()
        amount = app.plan.kv_ops_per_second
        if amount is None:
            return None
        cost = 1
        if "ops" in arguments and isinstance(arguments["ops"], list):
            cost = min(max(1, len(arguments["ops"])), amount)
        return spend_of_app(call, POLICY, amount, 1, cost)


KV_OPERATIONS = KvOperations()
