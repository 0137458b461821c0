"""How users get into an app, as its owner has set it."""

from typing import cast

from sqlalchemy import select

from baobab.storage.sql.database import Execute
from baobab.tools.core import Call
from baobab.tools.users.schemas import SignInSettings
from baobab.tools.users.tables import user_settings

_DEFAULTS: SignInSettings = {
    "anonymous": False,
    "anonymous_days": None,
    "invite_only": False,
    "second_factor": "optional",
    "logo_url": None,
    "colour": None,
}


async def find_settings(execute: Execute, app_id: str) -> SignInSettings:
    """Returns the settings of an app, which are the defaults until somebody has set them."""
    row = (await execute(select(user_settings).where(user_settings.c.app_id == app_id))).mappings().first()
    return (
        _DEFAULTS if row is None else cast(SignInSettings, {name: row[name] for name in SignInSettings.__annotations__})
    )


async def read_settings(call: Call) -> SignInSettings:
    """Does the same in a transaction that only reads, before the call's own begins."""
    async with call.stores.database.reading() as connection:
        return await find_settings(connection.execute, call.require_app().id)
