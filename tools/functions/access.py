"""Who may call functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import (
    Account,
    Anonymous,
    AppKey,
    AppNotFound,
    BaobabError,
    Call,
    Caller,
    EndUser,
    Forbidden,
    Unauthenticated,
)
from baobab.tools.core.auth.access import owner_role


@dataclass(frozen=True, slots=True)
class AsTriggerSays:
    """Everybody whom the function's own trigger admits. The app's access mode does not matter."""

    in_every_mode: bool = True
    anonymous: bool = True
    credential: bool = True
    description: str = "As the function's trigger says: anybody, or a user or a key of the app."
    raises: tuple[type[BaobabError], ...] = (Forbidden, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account | AppKey | EndUser | Anonymous)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller, app = call.caller, call.require_app()
        if isinstance(caller, Account | AppKey):
            call.role = await owner_role(call)
        elif isinstance(caller, EndUser | Anonymous):
            if caller.app_id not in (None, app.id):
                raise Forbidden(f"This credential does not belong to the app {app.id}.")
        else:
            raise Forbidden(
                "This credential calls no functions.", remediation="Send a key of the app, or a user's token."
            )


@dataclass(frozen=True, slots=True)
class ToolCallers:
    """Those who run the app, its users, and visitors whose run of a public agent calls."""

    anonymous: bool = True
    credential: bool = True
    description: str = (
        "A member of the app's organisation or a key of the app; a user of the app, or a public run of a visitor, if "
        "the function is exposed to end users."
    )
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account | AppKey | EndUser | Anonymous)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Account | AppKey):
            call.role = await owner_role(call)
            return
        attempt = call.approved_attempt
        is_of_run = call.context.step is not None or (attempt is not None and attempt.run_id is not None)
        if isinstance(caller, Anonymous) and not is_of_run:
            raise Unauthenticated
        if not isinstance(caller, EndUser | Anonymous) or caller.app_id not in (None, call.require_app().id):
            raise Forbidden(f"This credential does not belong to the app {call.require_app().id}.")


AS_TRIGGER_SAYS, TOOL_CALLERS = AsTriggerSays(), ToolCallers()
