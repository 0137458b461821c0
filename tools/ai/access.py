"""Access objects that decide who may call models, through the gateway and in an app."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import (
    Account,
    Anonymous,
    AppKey,
    BaobabError,
    Call,
    Caller,
    Forbidden,
    Unauthenticated,
    require_role,
)
from baobab.tools.core.auth.access import owner_role
from baobab.tools.core.auth.callers import ScopedKey

SCOPE = "ai:gateway"


@dataclass(frozen=True, slots=True)
class GatewayCallers:
    """Admits accounts and keys with the scope `ai:gateway`. An app's keys call models under the app's settings."""

    anonymous: bool = False
    credential: bool = True
    description: str = "An account: its token, a key with the scope `*`, or one with `ai:gateway`; a key of an app."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return (
            isinstance(caller, Account)
            or (isinstance(caller, ScopedKey) and SCOPE in caller.scopes)
            or (isinstance(caller, AppKey) and caller.gateway)
        )

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if isinstance(call.caller, Anonymous):
            raise Unauthenticated
        caller = call.caller
        if isinstance(caller, AppKey) and caller.gateway:
            # The app's settings apply at both base paths.
            call.app = await call.services.directory.app(caller.app_id)
            call.role = await owner_role(call)
            return
        if not isinstance(caller, (Account, ScopedKey)) or not self.admits(caller):
            raise Forbidden(f"{call.tool.name} needs an account, or a key with the scope `{SCOPE}`.")
        # An account that has left the organisation may no longer spend its credits.
        call.role = await call.services.directory.role(caller.organisation_id, caller.account_id)
        require_role(call.role, "member")


GATEWAY_CALLERS = GatewayCallers()
