"""Access objects that decide who may run agents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import Anonymous, AppNotFound, BaobabError, Call, Caller, Forbidden, Unauthenticated
from baobab.tools.core.auth.access import OF_APP


@dataclass(frozen=True, slots=True)
class Public:
    """Callers with the app's public anon key, the app's users, and the people and keys that run the app."""

    anonymous: bool = True
    credential: bool = True
    description: str = "Anonymous, with the app's public anon key in the header `apikey`; its users; those who run it."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Anonymous) or OF_APP.admits(caller)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller, app = call.caller, call.require_app()
        if isinstance(caller, Anonymous) and caller.app_id is None:
            raise Unauthenticated(
                "This operation needs the app's anon key.", remediation="Send it in the header `apikey`."
            )
        if not isinstance(caller, Anonymous):
            await OF_APP.authorise(call, arguments)
        elif caller.app_id != app.id:
            raise Forbidden("This anon key is another app's.")


PUBLIC = Public()
