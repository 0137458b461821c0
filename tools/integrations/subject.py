"""Whose accounts a call is about: its caller's, or those of the user that a key of the app names."""

from dataclasses import dataclass

from baobab.tools.core import Call, EndUser, Forbidden
from baobab.tools.integrations.errors import UserRequired


@dataclass(frozen=True, slots=True)
class Subject:
    """A user of the app. name: what people call them, such as their address."""

    id: str
    name: str


def find_user_id(call: Call, user_id: str | None) -> str | None:
    """Returns the user whom a call is about; None for one by whoever runs the app that names none.

    Raises Forbidden for a user who names another.
    """
    caller = call.caller
    if not isinstance(caller, EndUser):
        return user_id
    if user_id not in (None, caller.user_id):
        raise Forbidden("A user acts with their own accounts only.", remediation="Leave `userId` out.")
    return caller.user_id


def require_user_id(call: Call, user_id: str | None) -> str:
    """Does the same. Raises UserRequired where nobody is named."""
    found_id = find_user_id(call, user_id)
    if found_id is None:
        raise UserRequired
    return found_id


async def load_subject(call: Call, user_id: str | None) -> Subject:
    """Returns the user whom a call is about. Raises UserRequired, Forbidden, and NotFound for one that is not there."""
    found_id = require_user_id(call, user_id)
    app_id = call.require_app().id
    if isinstance(call.caller, EndUser):
        user = await call.invoke("auth_me", app_id=app_id)
    else:
        user = (await call.invoke("users_get", app_id=app_id, user_id=found_id))["user"]
    return Subject(found_id, user["email"] or user["display_name"] or found_id)
