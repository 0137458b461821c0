"""Decides who may become a user of an app. Every way of signing up passes through here."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, or_, select, update

from baobab.storage.sql.database import Execute
from baobab.tools.core import Call
from baobab.tools.core.auth.directory import App
from baobab.tools.core.limits.plan_room import require_room
from baobab.tools.users.errors import SignUpClosed
from baobab.tools.users.settings import find_settings, read_settings
from baobab.tools.users.tables import user_invitations, users

_columns = user_invitations.c


async def find_invitation(execute: Execute, app_id: str, email: str, now: datetime) -> Any:
    """Returns the row of the invitation that an address can accept now, or None."""
    conditions = (_columns.app_id == app_id, _columns.email == email, _columns.accepted_at.is_(None))
    return (await execute(select(user_invitations).where(*conditions, _columns.expires_at > now))).first()


async def require_open(call: Call) -> None:
    """Raises SignUpClosed where the app takes only those who are invited: before anything costly is done, and alike
    for every address. It precedes the call's first statement.
    """
    if (await read_settings(call))["invite_only"]:
        raise SignUpClosed


async def require_user_room(execute: Execute, app: App, now: datetime, more: int = 1) -> None:
    """Raises PlanLimitReached where the app has as many users in this month as its plan has room for.

    A user counts in the months (UTC) in which they join or sign in. Users who are there already sign in as before.
    """
    cap = app.plan.monthly_users
    if cap is None:
        return
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    active = or_(users.c.created_at >= month, users.c.last_sign_in_at >= month)
    active_users = select(users.c.id).where(users.c.app_id == app.id, active).limit(cap + 1).subquery()
    user_count = (await execute(select(func.count()).select_from(active_users))).scalar_one()
    require_room("users in a month", app.plan, cap, user_count, more)


async def admit(
    execute: Execute, app: App, email: str | None, now: datetime, *, proves_address: bool
) -> dict[str, Any]:
    """Returns columns of somebody who becomes a user now: the role of an invitation, which is used up by this.

    proves_address: whether they read the mail of the address. Only then an invitation to it is theirs.
    Raises SignUpClosed where the app takes only those who are invited, and PlanLimitReached.
    """
    app_id = app.id
    await require_user_room(execute, app, now)
    invitation = await find_invitation(execute, app_id, email, now) if proves_address and email is not None else None
    if invitation is not None:
        conditions = (_columns.app_id == app_id, _columns.id == invitation.id, _columns.accepted_at.is_(None))
        if (await execute(update(user_invitations).where(*conditions).values(accepted_at=now))).rowcount:
            return {"role": invitation.role}
    if (await find_settings(execute, app_id))["invite_only"]:
        raise SignUpClosed
    return {}
