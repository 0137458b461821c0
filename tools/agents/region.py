"""The region of an app's agents: their rows are in its database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from baobab.storage.database import Unit
from baobab.tools.agents.data import FREEZES
from baobab.tools.core.call import Call


@asynccontextmanager
async def writing(call: Call) -> AsyncIterator[Unit]:
    """Opens a transaction there: the call's own if it is the same database, so that the audit row is committed with it.

    AppMigrating while the app is being moved.
    """
    database = call.stores.database
    app_id = call.require_app().id
    if call.unit.database is database:
        await FREEZES.require_thawed(call.unit.execute, app_id)
        yield call.unit
        return
    async with database.writing_unit() as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        yield unit
