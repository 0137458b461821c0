"""Who may decide: whoever is held to nothing, for what is held to approval must not approve."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.access import AnyAccount
from baobab.tools.approvals.errors import NotYoursToDecide
from baobab.tools.call import Call
from baobab.tools.callers import Caller
from baobab.tools.errors import BaobabError, Forbidden, Unauthenticated

_ACCOUNT = AnyAccount()


@dataclass(frozen=True, slots=True)
class Decider:
    """A platform account, by its token or a key without limits."""

    anonymous: bool = False
    credential: bool = True
    description: str = "A platform account: its token, or an API key with the scope `*` and without limits."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return _ACCOUNT.admits(caller) and caller.limits is None

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if call.caller.limits is not None:
            # Before its policy is asked: else it would propose the decision.
            raise NotYoursToDecide
        await _ACCOUNT.authorise(call, arguments)


DECIDERS = Decider()
