"""Passkeys of users: where their ceremonies may run, and their rows."""

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import select

from baobab.runtime.passkeys import Ceremonies, PasskeysUnavailable, Site
from baobab.storage.database import Execute
from baobab.tools.core.call import Call
from baobab.tools.users.redirects import is_redirect_allowed
from baobab.tools.users.schemas import Passkey
from baobab.tools.users.tables import user_passkeys

MOST_PASSKEYS = 20
columns = user_passkeys.c


def get_ceremonies(call: Call) -> Ceremonies:
    return Ceremonies(call.services.vault, call.services.clock.time, f"users:{call.require_app().id}")


def find_site(call: Call, origin: str | None) -> Site:
    """Returns the site on which a ceremony runs: that of the page that calls, if the app allows its origin.

    origin: as the browser says it; None, as of a program, stands for this server's own address. Passkeys belong to the
    host name of the page: one that was made on the app's own host is not offered on the server's, and the other way
    round. Raises PasskeysUnavailable.
    """
    own = (call.services.options.base_url, call.context.base_url)
    if origin is None:
        return Site.parse(own[0])
    if origin not in own and not is_redirect_allowed(call, origin):
        raise PasskeysUnavailable(
            "The app does not allow this page's origin.", remediation="Add it with op:config_cors."
        )
    return Site.parse(origin)


async def list_passkeys(execute: Execute, app_id: str, user_id: str) -> Sequence[Any]:
    """Returns the rows of a user's passkeys, the newest first."""
    own = (columns.app_id == app_id, columns.user_id == user_id)
    query = select(user_passkeys).where(*own).order_by(columns.created_at.desc(), columns.id).limit(MOST_PASSKEYS)
    return (await execute(query)).all()


async def find_passkey(execute: Execute, app_id: str, credential_id: str, rp_id: str) -> Any:
    """Returns the row of a passkey of the app by the id that browsers know; None if there is none of this host."""
    this = (columns.app_id == app_id, columns.credential_id == credential_id, columns.rp_id == rp_id)
    return (await execute(select(user_passkeys).where(*this))).first()


def describe_passkey(row: Any) -> Passkey:
    return cast(Passkey, {name: getattr(row, name) for name in Passkey.__annotations__})
