"""Access objects for the tools of a user's own account."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import Anonymous, BaobabError, Call, Caller, EndUser, Forbidden, Unauthenticated
from baobab.tools.core.errors import InvalidUserToken


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """A user of the app, by the access token of a session, or by a key of the app that acts for the user."""

    anonymous: bool = False
    credential: bool = True
    description: str = "A user of the app, by its access token."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, InvalidUserToken, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, EndUser)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Anonymous):
            raise Unauthenticated("This needs the access token of a user.", remediation="Sign in and send the token.")
        if not isinstance(caller, EndUser):
            raise Forbidden(f"{call.tool.name} is for the users of an app.")
        if caller.app_id != call.require_app().id:
            raise InvalidUserToken


SIGNED_IN_USER = SignedInUser()


@dataclass(frozen=True, slots=True)
class UserOrChallenge:
    """A user of the app, or whoever has shown the first factor and has the challenge of that."""

    anonymous: bool = True
    credential: bool = True
    description: str = "A user of the app, by its access token, or whoever has the challenge of a sign-in."
    raises: tuple[type[BaobabError], ...] = SIGNED_IN_USER.raises

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, EndUser | Anonymous)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if not isinstance(call.caller, Anonymous) or arguments.get("challenge") is None:
            await SIGNED_IN_USER.authorise(call, arguments)


USER_OR_CHALLENGE = UserOrChallenge()
