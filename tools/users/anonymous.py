"""Anonymous users, who have no address yet, and what keeps their id when they get one."""

import json
from typing import Any

from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from baobab.storage.secrets import SecretUnreadable
from baobab.storage.sql.database import Unit
from baobab.tools.core import Call, EndUser
from baobab.tools.users.errors import NotAnonymous, UserExists
from baobab.tools.users.rows import find_user
from baobab.tools.users.sessions import find_session
from baobab.tools.users.tables import users

_TICKET_SECONDS = 600
_CONTEXT = "anonymous upgrade:"


async def give_address(unit: Unit, app_id: str, user_id: str, email: str, **changes: Any) -> dict[str, Any]:
    """Gives an anonymous user an address with further columns, and returns the user.

    Raises UserExists if another user has the address, and NotAnonymous if this one has one.
    """
    anonymous = (users.c.app_id == app_id, users.c.id == user_id, users.c.email.is_(None))
    try:
        result = await unit.execute(update(users).where(*anonymous).values(email=email, **changes))
    except IntegrityError as exc:
        raise UserExists from exc
    user = await find_user(unit.execute, app_id, user_id=user_id)
    if not result.rowcount or user is None:
        raise NotAnonymous
    return user


def seal_ticket(call: Call, caller: EndUser) -> str:
    """Returns the sealed text by which a browser's OAuth flow says which anonymous user it is for."""
    ticket = {
        "user": caller.user_id,
        "session": caller.session_id,
        "ends": call.services.clock.time() + _TICKET_SECONDS,
    }
    return call.services.vault.seal(json.dumps(ticket).encode(), _CONTEXT + caller.app_id)


async def open_ticket(call: Call, text: str) -> str:
    """Returns the user whom a ticket is for. Raises NotAnonymous for one that is damaged, of another app or over."""
    try:
        ticket = json.loads(call.services.vault.open(text, _CONTEXT + call.require_app().id))
    except (SecretUnreadable, ValueError) as exc:
        raise NotAnonymous("This ticket is not valid here.") from exc
    if ticket["ends"] <= call.services.clock.time() or await find_session(call, ticket["session"]) is None:
        raise NotAnonymous("This ticket is no longer valid.")
    return str(ticket["user"])
