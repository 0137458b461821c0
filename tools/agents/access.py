"""Who may run agents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.access import owner_role
from baobab.tools.call import Call
from baobab.tools.callers import Account, Anonymous, AppKey, Caller, EndUser
from baobab.tools.errors import AppNotFound, BaobabError, Forbidden, Unauthenticated


@dataclass(frozen=True, slots=True)
class Runners:
    """Whoever runs the app, its keys, and its users. What each may do with which agent is asked of the agent."""

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


RUNNERS = Runners()


@dataclass(frozen=True, slots=True)
class Public:
    """Anybody who has the app's public anon key, its users, and those who run it."""

    anonymous: bool = True
    credential: bool = True
    description: str = "Anonymous, with the app's public anon key in the header `apikey`; its users; those who run it."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Anonymous) or RUNNERS.admits(caller)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller, app = call.caller, call.require_app()
        if isinstance(caller, Anonymous) and caller.app_id is None:
            raise Unauthenticated(
                "This operation needs the app's anon key.", remediation="Send it in the header `apikey`."
            )
        if not isinstance(caller, Anonymous):
            await RUNNERS.authorise(call, arguments)
        elif caller.app_id != app.id:
            raise Forbidden("This anon key is another app's.")


PUBLIC = Public()
