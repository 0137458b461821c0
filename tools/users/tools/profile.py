"""A user's own record."""

from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import update

from baobab.runtime.passwords import hash_password, verify_password
from baobab.tools.core import AppId, Audit, BadRequest, Call, EndUser, Forbidden, Rest, Text
from baobab.tools.core.auth.password_attempts import PasswordAttempts
from baobab.tools.core.auth.passwords import AnyPassword, Password, WeakPassword, check_password
from baobab.tools.core.errors import MissingField
from baobab.tools.users.access import SIGNED_IN_USER
from baobab.tools.users.errors import UserNotFound, WrongUserPassword
from baobab.tools.users.fields import DisplayName
from baobab.tools.users.rows import find_user, read_user
from baobab.tools.users.schemas import Profile
from baobab.tools.users.sessions import end_sessions
from baobab.tools.users.tables import FREEZES, users
from baobab.tools.users.toolset import auth

AvatarUrl = Annotated[str, Text(2000, pattern=r"^https://[^\s]+$"), Field(description="An https address of a picture.")]


@auth.tool("GET /me", access=SIGNED_IN_USER, effect="read", raises=(UserNotFound,))
async def auth_me(call: Call, app_id: AppId) -> Profile:
    """Read the signed-in user."""
    assert isinstance(call.caller, EndUser)
    async with call.reading() as execute:
        user = await find_user(execute, app_id, user_id=call.caller.user_id)
    if user is None:
        raise UserNotFound
    return _build_record(user)


@auth.tool(
    "PATCH /me",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(UserNotFound, WeakPassword, WrongUserPassword),
    audit=Audit("user.update", category="auth", resource="user"),
    rest=Rest(examples={"display_name": "Ada Lovelace"}),
)
async def auth_update_me(
    call: Call,
    app_id: AppId,
    display_name: DisplayName | None = None,
    avatar_url: AvatarUrl | None = None,
    password: Password | None = None,
    current_password: AnyPassword | None = None,
) -> Profile:
    """Change the signed-in user's name, picture or password. A new password ends every other session.

    current_password: the present password; needed to set a new one.
    """
    caller = call.caller
    assert isinstance(caller, EndUser)
    new_values = {"display_name": display_name, "avatar_url": avatar_url}
    changes: dict[str, Any] = {name: value for name, value in new_values.items() if value is not None}
    user = await read_user(call, user_id=caller.user_id)
    if user is None:
        raise UserNotFound
    if not changes and password is None:
        raise BadRequest("Nothing to change: send `display_name`, `avatar_url` or `password`.")
    if password is not None:
        if caller.key_id is not None:
            raise Forbidden("A key cannot set a user's password.", remediation="Sign in as the user to set it.")
        await _verify_present(call, user, current_password)
        check_password(password)
        changes["password_hash"] = await hash_password(password)
    is_this = (users.c.app_id == app_id, users.c.id == caller.user_id)
    # It must still be the password that was verified.
    same = users.c.password_hash.is_not_distinct_from(user["password_hash"])
    async with FREEZES.writing(call) as unit:
        if not (await unit.execute(update(users).where(*is_this, same).values(**changes))).rowcount:
            raise WrongUserPassword
        if password is not None:
            await end_sessions(call, unit, caller.user_id, but=caller.session_id)
    call.audit.resource_id = caller.user_id
    call.audit.data["fields"] = ["password" if field == "password_hash" else field for field in changes]
    return _build_record({**user, **changes})


async def _verify_present(call: Call, user: dict[str, Any], current: str | None) -> None:
    """Checks a user's present password. A user without one sets the first by a mailed code (op:auth_reset_password)."""
    if current is None:
        raise MissingField("`current_password` is missing.")
    # A thief of the token must not be able to guess the password here.
    attempts = PasswordAttempts(call, user["email"] or user["id"])
    await attempts.require_room()
    if not await verify_password(user["password_hash"], current):
        await attempts.count_wrong()
        raise WrongUserPassword


def _build_record(user: dict[str, Any]) -> Profile:
    return cast(Profile, {name: user[name] for name in Profile.__annotations__})
