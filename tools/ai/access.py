"""Who may call models: by the gateway, and in an app."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.access import require_role
from baobab.tools.call import Call
from baobab.tools.callers import Account, Anonymous, Caller, ScopedKey
from baobab.tools.errors import BaobabError, Forbidden, Unauthenticated

SCOPE = "ai:gateway"


@dataclass(frozen=True, slots=True)
class GatewayCallers:
    """Accounts, and keys with the scope `ai:gateway`."""

    anonymous: bool = False
    credential: bool = True
    description: str = "A platform account: its token, a key with the scope `*`, or one with `ai:gateway`."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account) or (isinstance(caller, ScopedKey) and SCOPE in caller.scopes)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if isinstance(call.caller, Anonymous):
            raise Unauthenticated
        caller = call.caller
        if not isinstance(caller, (Account, ScopedKey)) or not self.admits(caller):
            raise Forbidden(f"This operation needs an account, or a key with the scope `{SCOPE}`.")
        # Whoever has left the organisation spends nothing of it any more.
        call.role = await call.services.directory.role(caller.organisation_id, caller.account_id)
        require_role(call.role, "member")


GATEWAY_CALLERS = GatewayCallers()
