"""The limit of operations per second: set by the plan, counted for each app."""

from typing import TYPE_CHECKING, Any

from baobab.tools.core.call import Spent
from baobab.tools.core.limits.limits import spend_of_app

if TYPE_CHECKING:
    from baobab.tools.core import Call

POLICY = "kv"


class KvOperations:
    """Spends one for a call, and one for each operation of a batch.

    A batch never costs more than a whole second, or a full one could not be sent on a small plan.
    """

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
