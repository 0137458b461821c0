"""Decides who may reach the rows of an app: its owner and keys all, users and visitors those that policies allow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baobab.tools.core import (
    Account,
    Anonymous,
    AppKey,
    AppNotFound,
    BadRequest,
    BaobabError,
    Caller,
    EndUser,
    Forbidden,
    Unauthenticated,
)
from baobab.tools.core.auth.access import owner_role
from baobab.tools.core.errors import AppPaused, InvalidUserToken
from baobab.tools.data.actor import SERVICE, VISITOR, Actor
from baobab.tools.data.errors import SchemaNotFound
from baobab.tools.data.schemas import ActingAs

if TYPE_CHECKING:
    from baobab.tools.core import Call


@dataclass(frozen=True, slots=True)
class OpenToPolicies:
    """The owner and the keys of the app reach every row. Its users and visitors reach the rows that policies allow."""

    anonymous: bool = True
    credential: bool = True
    description: str = "Those who run the app; its users and visitors, for the rows that policies open to them."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, InvalidUserToken, Forbidden, AppNotFound, AppPaused)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account | AppKey | EndUser | Anonymous)

    async def authorise(self, call: "Call", arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        app_id = call.require_app().id
        if isinstance(caller, Account | AppKey):
            call.role = await owner_role(call)
        elif isinstance(caller, EndUser):
            if caller.app_id != app_id:
                raise InvalidUserToken("The token was issued by another app.")
        elif not isinstance(caller, Anonymous) or caller.app_id not in (None, app_id):
            raise Forbidden("This key does not open the app's tables.")
        if not isinstance(caller, Account | AppKey) and (arguments.get("as_role") or arguments.get("as_user")):
            raise Forbidden("Only those who run the app can see it as somebody else.")
        if call.require_app().is_paused:
            raise AppPaused(call.require_app().paused_reason)


ACCESS = OpenToPolicies()


def find_actor(call: "Call", acting: ActingAs) -> Actor:
    """Returns the actor for whom a call reads and writes. Raises BadRequest if a role needs a user and has none,
    and SchemaNotFound for any schema of the database but the one that there is.
    """
    caller = call.caller
    if call.context.profile not in ("", "public"):
        raise SchemaNotFound(f"There is no schema `{call.context.profile[:63]}`, only `public`.")
    if isinstance(caller, EndUser):
        return Actor("user", caller.user_id, caller.role)
    if isinstance(caller, Anonymous):
        return VISITOR
    as_role, as_user = acting["as_role"], acting["as_user"]
    if as_role in (None, "user") and as_user is not None:
        call.audit.data["as_user"] = as_user
        return Actor("user", as_user)
    if as_role == "user":
        raise BadRequest("`user` needs the id of one.", remediation="Name the user in X-Platform-As-User or `as_user`.")
    return VISITOR if as_role == "anon" else SERVICE
