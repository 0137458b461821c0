"""The row of the called app, as this transaction sees it: the directory's copy may be of one that is gone by now."""

from typing import Any

from sqlalchemy import select

from baobab.tools.core.auth.tables import apps
from baobab.tools.core.call import Call
from baobab.tools.core.errors import AppNotFound


async def get_app_row(call: Call) -> Any:
    row = (await call.execute(select(apps).where(apps.c.id == call.require_app().id))).mappings().first()
    if row is None:
        raise AppNotFound
    return row
