"""Who may call models: by the gateway, and in an app."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.access import owner_role, require_role
from baobab.tools.call import Call
from baobab.tools.callers import Account, Anonymous, AppKey, Caller, EndUser, ScopedKey
from baobab.tools.errors import AppNotFound, BaobabError, Forbidden, Unauthenticated

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


@dataclass(frozen=True, slots=True)
class AppAi:
    """Whoever runs the app, its keys, and its users, who call at the expense of the app's organisation."""

    anonymous: bool = False
    credential: bool = True
    description: str = "A member of the app's organisation, a key of the app, or a user of the app."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, (Account, AppKey, EndUser))

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Anonymous):
            raise Unauthenticated
        if isinstance(caller, EndUser):
            if caller.app_id != call.require_app().id:
                raise Forbidden("This credential does not belong to that app.")
            return
        if not isinstance(caller, (Account, AppKey)):
            raise Forbidden("This operation is for an app's organisation and its users.")
        call.role = await owner_role(call)


GATEWAY_CALLERS, APP_AI = GatewayCallers(), AppAi()
