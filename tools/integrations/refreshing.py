"""Refreshes tokens ahead of time: one refresh of an account at a time, whichever worker makes it.

Services that give a new refresh token with each refresh take the old one once. So a worker takes the account's row
before it asks, and reads it again once it has it: another may have refreshed meanwhile. A refusal counts only if the
token that was refused is still the one that is kept.
"""

import asyncio
from datetime import timedelta
from typing import Any

from sqlalchemy import or_, select, update

from baobab.runtime.integrations.provider import ConnectionLost, Grant, IntegrationProvider, ProviderBusy, Setting
from baobab.runtime.jobs.job_slots import network_wait
from baobab.storage.sql.database import Database
from baobab.tools.core import Services
from baobab.tools.integrations.grants import expires_before, open_grant, seal_grant
from baobab.tools.integrations.schemas import Row
from baobab.tools.integrations.tables import connections

AHEAD = timedelta(minutes=5)
"""A token that ends within this is refreshed before it is used."""
_HELD = timedelta(seconds=40)
"""How long one worker has the account to itself: longer than a request to a service may take."""
_PAUSE_SECONDS, _MOST_PAUSES = 0.25, 200
_columns = connections.c


async def refresh_grant(
    services: Services, database: Database, provider: IntegrationProvider, setting: Setting, account: Row
) -> Row:
    """Returns the row of an account with a token that is good for a while. Raises ConnectionLost or ProviderBusy."""
    row = account
    for _ in range(_MOST_PAUSES):
        if row.grant is None or not expires_before(row, services.clock.now() + AHEAD):
            return row
        holder = services.ids.uuid()
        held_row = await _take(services, database, row, holder)
        if held_row is not None:
            return await _refresh(services, database, provider, setting, held_row, holder)
        async with network_wait():
            await asyncio.sleep(_PAUSE_SECONDS)
        row = await _load(database, row)
    raise ProviderBusy("Another worker is refreshing this account's token.", 5.0)


async def _take(services: Services, database: Database, row: Row, holder: str) -> Row | None:
    """Takes the account for one refresh, and returns its row as it is now; None if another worker has it."""
    now = services.clock.now()
    is_free = or_(_columns.refreshing_until.is_(None), _columns.refreshing_until <= now)
    taking = update(connections).where(_is(row), is_free)
    async with database.writing_unit(lock=row.app_id) as unit:
        outcome = await unit.execute(taking.values(refreshing_by=holder, refreshing_until=now + _HELD))
        if not outcome.rowcount:
            return None
        found_row: Row = (await unit.execute(select(connections).where(_is(row)))).first()
    return found_row


async def _refresh(
    services: Services, database: Database, provider: IntegrationProvider, setting: Setting, row: Row, holder: str
) -> Row:
    if row.grant is None or not expires_before(row, services.clock.now() + AHEAD):
        # Another worker did it, between our look and our turn.
        await _give_back(database, row, holder, {})
        return row
    grant = open_grant(services.vault, row)
    assert grant is not None
    try:
        fresh = await provider.refresh(setting, grant)
    except ConnectionLost:
        kept_row = await _load(database, row)
        await _give_back(database, row, holder, {})
        if kept_row.grant is not None and _is_other(open_grant(services.vault, kept_row), grant):
            return kept_row
        raise
    except BaseException:
        await _give_back(database, row, holder, {})
        raise
    await _give_back(database, row, holder, seal_grant(services.vault, row.id, fresh))
    return await _load(database, row)


async def _give_back(database: Database, row: Row, holder: str, values: dict[str, Any]) -> None:
    """Ends a refresh. A new grant is kept also where the time for it had run out: the old one is not good any more."""
    async with database.writing_unit(lock=row.app_id) as unit:
        if values:
            await unit.execute(update(connections).where(_is(row)).values(**values))
        release = update(connections).where(_is(row), _columns.refreshing_by == holder)
        await unit.execute(release.values(refreshing_by=None, refreshing_until=None))


async def _load(database: Database, row: Row) -> Row:
    async with database.reading() as connection:
        found_row = (await connection.execute(select(connections).where(_is(row)))).first()
    if found_row is None:
        raise ConnectionLost("The account was disconnected meanwhile.")
    return found_row


def _is_other(kept_row: Grant | None, used: Grant) -> bool:
    return kept_row is not None and kept_row.refresh_token != used.refresh_token


def _is(row: Row) -> Any:
    return (_columns.app_id == row.app_id) & (_columns.id == row.id)
