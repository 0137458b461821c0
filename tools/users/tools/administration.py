"""Users as those who run the app see them: list, change, ban and delete them, end their sessions."""

from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import and_, delete, or_, select, update

from baobab.tools.core import (
    AppId,
    AppOwner,
    Audit,
    BadRequest,
    Call,
    Cursor,
    Guard,
    NameText,
    Rest,
    Text,
    Uuid,
    decode_cursor,
    encode_cursor,
)
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.core.list_totals import count_list
from baobab.tools.users.errors import SessionNotFound, UserNotFound
from baobab.tools.users.events import DELETED
from baobab.tools.users.fields import DisplayName, RoleName
from baobab.tools.users.rows import delete_users, find_user
from baobab.tools.users.schemas import DeletedUser, EndedSessions, ListedUser, OneUser, Sessions, Users, UserWithFactors
from baobab.tools.users.second_factor import describe_factors
from baobab.tools.users.sessions import announce_change, describe_session, end_sessions, list_sessions
from baobab.tools.users.sign_in import report_change
from baobab.tools.users.tables import FREEZES, user_codes, user_invitations
from baobab.tools.users.tables import users as rows
from baobab.tools.users.toolset import users

_ADMIN = AppOwner("admin")

Search = Annotated[str, NameText(100, min_length=1), Field(description="The beginning of an e-mail address.")]
UserId = Annotated[Uuid, Field(description="The user, by the `id` of op:users_list.")]
SessionId = Annotated[Uuid, Field(description="A session, by the `id` of op:users_sessions.")]
Reason = Annotated[str, Text(500)]


@users.tool(
    "GET /admin/auth/users",
    access=AppOwner(),
    effect="read",
    taints=True,
)
async def users_list(
    call: Call,
    app_id: AppId,
    limit: Annotated[int, Field(ge=1, le=200, description="Users in one page.")] = 50,
    cursor: Cursor | None = None,
    search: Search | None = None,
) -> Users:
    """List the users of an app, the newest first.

    search: only users whose address begins so.
    """
    of = f"users:{app_id}:{search or ''}"
    query = select(rows).where(rows.c.app_id == app_id).order_by(rows.c.created_at.desc(), rows.c.id.desc())
    if search is not None:
        query = query.where(rows.c.email.startswith(search.lower(), autoescape=True))
    whole_query = query
    if cursor is not None:
        at, last = decode_cursor(call.services.vault, of, cursor)
        moment = datetime.fromisoformat(at)
        query = query.where(or_(rows.c.created_at < moment, and_(rows.c.created_at == moment, rows.c.id < last)))
    async with call.reading() as execute:
        user_rows = (await execute(query.limit(limit + 1))).mappings().all()
        await count_list(call, execute, whole_query, is_all=cursor is None and len(user_rows) <= limit)
    page, following = user_rows[:limit], None
    if len(user_rows) > limit:
        following = encode_cursor(call.services.vault, of, page[-1]["created_at"].isoformat(), page[-1]["id"])
    return {"users": [_list_user(row) for row in page], "next_cursor": following}


@users.tool(
    "GET /admin/auth/users/{user_id}",
    access=AppOwner(),
    effect="read",
    taints=True,
    raises=(UserNotFound,),
)
async def users_get(call: Call, app_id: AppId, user_id: UserId) -> UserWithFactors:
    """Read one user of an app, and what the user has set up as a second factor."""
    async with call.reading() as execute:
        user = await find_user(execute, app_id, user_id=user_id)
        if user is None:
            raise UserNotFound
        second_factor = await describe_factors(execute, app_id, user_id)
    return {"user": _list_user(user), "second_factor": second_factor}


@users.tool(
    "PATCH /admin/auth/users/{user_id}",
    access=_ADMIN,
    effect="write",
    raises=(UserNotFound,),
    audit=Audit("auth.user.update", category="auth", resource="user"),
    rest=Rest(examples={"role": "editor"}),
    guard=Guard(widens={"role": whatever_is_given}),
)
async def users_update(
    call: Call,
    app_id: AppId,
    user_id: UserId,
    role: RoleName | None = None,
    display_name: DisplayName | None = None,
    banned: bool | None = None,
    ban_reason: Reason | None = None,
) -> OneUser:
    """Change a user's role or name, or ban the user from the app. Takes effect at once, also for tokens already issued.

    banned: true ends all sessions and refuses new ones; false lets the user sign in again.
    ban_reason: kept for those who run the app; the user does not see it.
    """
    new_values = {"role": role, "display_name": display_name}
    changes: dict[str, Any] = {name: value for name, value in new_values.items() if value is not None}
    if banned is not None:
        changes |= {"banned_at": call.now if banned else None, "ban_reason": ban_reason if banned else None}
    elif ban_reason is not None:
        raise BadRequest("`ban_reason` goes with `banned: true`.")
    if not changes:
        raise BadRequest("Nothing to change: send `role`, `display_name` or `banned`.")
    is_this = (rows.c.app_id == app_id, rows.c.id == user_id)
    async with FREEZES.writing(call) as unit:
        if not (await unit.execute(update(rows).where(*is_this).values(**changes))).rowcount:
            raise UserNotFound
        if banned:
            await end_sessions(call, unit, user_id)
        else:
            await announce_change(call, user_id)
        user = await find_user(unit.execute, app_id, user_id=user_id)
    assert user is not None
    call.audit.resource_id = user_id
    call.audit.data["fields"] = sorted({"banned" if name.startswith("ban") else name for name in changes})
    return {"user": _list_user(user)}


async def _preview_deletion(call: Call, app_id: str, user_id: str) -> str:
    async with call.reading() as execute:
        user = await find_user(execute, app_id, user_id=user_id)
        if user is None:
            raise UserNotFound
        sessions = len(await list_sessions(execute, app_id, user_id, call.now))
    name = "an anonymous user" if user["email"] is None else f"the user {escape_name(user['email'])}"
    return f"Deletes {name} and ends {sessions} session{'' if sessions == 1 else 's'}."


@users.tool(
    "DELETE /admin/auth/users/{user_id}",
    access=_ADMIN,
    effect="destructive",
    raises=(UserNotFound,),
    guard=Guard(preview=_preview_deletion),
    audit=Audit("auth.user.delete", category="auth", action="delete", resource="user"),
)
async def users_delete(call: Call, app_id: AppId, user_id: UserId) -> DeletedUser:
    """Delete a user of an app with all sessions, and all mails to the user. What the user has made in the app stays."""
    async with FREEZES.writing(call) as unit:
        user = await find_user(unit.execute, app_id, user_id=user_id)
        if user is None:
            raise UserNotFound
        await delete_users(unit.execute, app_id, [user_id])
        if user["email"] is not None:
            codes = (user_codes.c.app_id == app_id, user_codes.c.email == user["email"])
            await unit.execute(delete(user_codes).where(*codes))
            invitations = (user_invitations.c.app_id == app_id, user_invitations.c.email == user["email"])
            await unit.execute(delete(user_invitations).where(*invitations))
            await call.services.mailer.erase(unit.execute, app_id, user["email"])
        await announce_change(call, user_id)
    await report_change(call, DELETED, user)
    call.audit.resource_id = user_id
    return {"deleted": True, "user_id": user_id, "email": user["email"]}


@users.tool(
    "GET /admin/auth/users/{user_id}/sessions",
    access=AppOwner(),
    effect="read",
    taints=True,
)
async def users_sessions(call: Call, app_id: AppId, user_id: UserId) -> Sessions:
    """List where a user is signed in, the most recently used first."""
    async with call.reading() as execute:
        session_rows = await list_sessions(execute, app_id, user_id, call.now)
    return {"sessions": [describe_session(row, None) for row in session_rows]}


@users.tool(
    "DELETE /admin/auth/users/{user_id}/sessions",
    access=_ADMIN,
    effect="write",
    raises=(SessionNotFound,),
    audit=Audit("session.end", category="auth", action="delete", resource="user"),
)
async def users_sessions_end(
    call: Call, app_id: AppId, user_id: UserId, session_id: SessionId | None = None
) -> EndedSessions:
    """Sign a user out everywhere, or of one session: refresh tokens and access tokens of it stop working.

    session_id: the only session that ends; null ends all of them.
    """
    async with FREEZES.writing(call) as unit:
        ended_count = await end_sessions(call, unit, user_id, session_id)
    if session_id is not None and not ended_count:
        raise SessionNotFound
    call.audit.resource_id = user_id
    return {"ended": ended_count}


def _list_user(row: Any) -> ListedUser:
    return cast(ListedUser, {name: row[name] for name in ListedUser.__annotations__})
