"""The end of every way of signing in: a session, its tokens, and the event that others wait for."""

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import delete, select, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import Call
from baobab.tools.users.errors import UserBanned
from baobab.tools.users.events import AUTHENTICATED, EMAIL_VERIFIED
from baobab.tools.users.schemas import Challenged, SignedIn, UserProfile
from baobab.tools.users.second_factor import challenge_user, delete_factors
from baobab.tools.users.sessions import build_tokens, end_sessions, mint_access_token, start_session
from baobab.tools.users.tables import FREEZES, user_identities, users


async def sign_in(
    call: Call,
    user: dict[str, Any],
    method: str,
    event: str,
    *,
    is_new: bool = False,
    proves_address: bool = False,
    ends_others: bool = False,
) -> SignedIn | Challenged:
    """Starts a session for a user who has proven who they are, or asks for the second factor first.

    It must precede the call's first statement.

    method: `email`, `magic_link`, `anonymous` or the slug of an OAuth provider. event: as the post-auth hook names it.
    proves_address: whether they have proven by it that they read the mail of their address. Where nobody had done that
    yet, whoever set the password may have been somebody else: it goes, and so do all sessions.
    ends_others: whether all sessions that the user had end anyhow.
    Raises UserBanned.
    """
    if user["banned_at"] is not None:
        raise UserBanned
    confirms = proves_address and not user["email_verified"]
    if confirms:
        user = {**user, "email_verified": True, "password_hash": None}
    access_token, session_id = await _mint(call, user)
    async with FREEZES.writing(call) as unit:
        if confirms:
            await confirm_address(unit, user["app_id"], user["id"], password_hash=None)
        if confirms or ends_others:
            await end_sessions(call, unit, user["id"])
        challenge = await challenge_user(call, unit.execute, user, method, event, is_new=is_new)
        if challenge is not None:
            name_user(call, user["id"])
            call.audit.data |= {"provider": method, "second_factor": "asked"}
            return challenge
        refresh_token = await start_session(call, unit, user["id"], session_id, method)
    await report_sign_in(call, user, method, event, is_new=is_new)
    if confirms or (is_new and user["email_verified"]):
        await report_change(call, EMAIL_VERIFIED, user)
    return {**build_tokens(call, access_token, refresh_token), "user": build_profile(user)}


async def finish_sign_in(call: Call, user: dict[str, Any], method: str, event: str, *, is_new: bool) -> SignedIn:
    """Starts a session for a user who has shown both factors, or a passkey that is both.

    It must precede the call's first statement. Raises UserBanned.
    """
    if user["banned_at"] is not None:
        raise UserBanned
    access_token, session_id = await _mint(call, user)
    async with FREEZES.writing(call) as unit:
        refresh_token = await start_session(call, unit, user["id"], session_id, method)
    await report_sign_in(call, user, method, event, is_new=is_new)
    return {**build_tokens(call, access_token, refresh_token), "user": build_profile(user)}


async def _mint(call: Call, user: dict[str, Any]) -> tuple[str, str]:
    session_id = call.services.ids.uuid()
    return await mint_access_token(call, user, session_id), session_id


async def confirm_address(unit: Unit, app_id: str, user_id: str, **changes: Any) -> None:
    """Marks the address of a user as verified, and makes further changes to the row.

    Identities of providers that were attached while nobody had verified the address go: they may be somebody else's.
    Where the password goes for that reason, so do the passkeys and the second factor.
    """
    unverified_users = select(users.c.id).where(
        users.c.app_id == app_id, users.c.id == user_id, users.c.email_verified.is_(False)
    )
    of_unverified = (user_identities.c.app_id == app_id, user_identities.c.user_id.in_(unverified_users))
    await unit.execute(delete(user_identities).where(*of_unverified))
    if "password_hash" in changes:
        await delete_factors(unit.execute, app_id, unverified_users)
    is_this = (users.c.app_id == app_id, users.c.id == user_id)
    await unit.execute(update(users).where(*is_this).values(email_verified=True, **changes))


async def report_sign_in(call: Call, user: dict[str, Any], method: str, event: str, *, is_new: bool) -> None:
    """Emits the event of a sign-in or sign-up, and names the user in the audit row."""
    name_user(call, user["id"])
    call.audit.data |= {"provider": method, "is_new_user": is_new}
    profile = {name: user[name] for name in ("id", "email", "display_name", "avatar_url")}
    payload = {"event": event, "user": {**profile, "provider": method}, "isNewUser": is_new, "provider": method}
    await call.emit(AUTHENTICATED, **payload)


async def report_change(call: Call, event: str, user: Mapping[str, Any]) -> None:
    """Emits the event that an address was verified or a user deleted."""
    await call.emit(event, user={name: user[name] for name in ("id", "email", "display_name")})


def name_user(call: Call, user_id: str) -> None:
    """Names the user in the audit row of a call that came without a credential."""
    call.audit.actor = "app_user"
    call.audit.actor_id = call.audit.resource_id = user_id


def build_profile(user: dict[str, Any]) -> UserProfile:
    return cast(UserProfile, {name: user[name] for name in UserProfile.__annotations__})
