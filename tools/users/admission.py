"""Who may become a user of an app: the one place that every way of signing up passes through."""

from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from baobab.storage.database import Execute
from baobab.tools.users.errors import SignUpClosed
from baobab.tools.users.settings import find_settings
from baobab.tools.users.tables import user_invitations

_columns = user_invitations.c


async def find_invitation(execute: Execute, app_id: str, email: str, now: datetime) -> Any:
    """Returns the row of the invitation that an address can accept now, or None."""
    which = (_columns.app_id == app_id, _columns.email == email, _columns.accepted_at.is_(None))
    return (await execute(select(user_invitations).where(*which, _columns.expires_at > now))).first()


async def admit(
    execute: Execute, app_id: str, email: str | None, now: datetime, *, proves_address: bool
) -> dict[str, Any]:
    """Returns columns of somebody who becomes a user now: the role of an invitation, which is used up by this.

    proves_address: whether they read the mail of the address. Only then an invitation to it is theirs.
    Raises SignUpClosed where the app takes only those who are invited.
    """
    invitation = await find_invitation(execute, app_id, email, now) if proves_address and email is not None else None
    if invitation is not None:
        this = (_columns.app_id == app_id, _columns.id == invitation.id, _columns.accepted_at.is_(None))
        if (await execute(update(user_invitations).where(*this).values(accepted_at=now))).rowcount:
            return {"role": invitation.role}
    if (await find_settings(execute, app_id))["invite_only"]:
        raise SignUpClosed
    return {}
