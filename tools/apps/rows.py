"""Reads the row of the called app in the call's transaction: the directory may still have an app that was deleted."""

from typing import Any

from sqlalchemy import select

from baobab.tools.core import AppNotFound, Call
from baobab.tools.core.auth.tables import apps


async def get_app_row(call: Call) -> Any:
    row = (await call.execute(select(apps).where(apps.c.id == call.require_app().id))).mappings().first()
    if row is None:
        raise AppNotFound
    return row
