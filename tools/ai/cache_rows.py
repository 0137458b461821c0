"""Kept answers of models, as rows: in the database of the app's region, or in the home region where there is no app."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from baobab.storage.database import Database
from baobab.storage.tables import build_upsert
from baobab.tools.ai.tables import response_cache
from baobab.tools.core.stores import Stores

MOST_ANSWERS, MOST_BYTES = 10_000, 256 * 2**20
"""Of one organisation in one database."""
_AT_ONCE = 100

_rows = response_cache.c


async def find(database: Database, digest: str, now: datetime) -> str | None:
    """The sealed answer, if its time is not over."""
    query = select(_rows.answer).where(_rows.digest == digest, _rows.expires_at > now)
    async with database.reading() as connection:
        return (await connection.execute(query)).scalar()


async def find_several(database: Database, digests: list[str], now: datetime) -> dict[str, str]:
    """The sealed answers by their digests, of those whose time is not over."""
    found: dict[str, str] = {}
    async with database.reading() as connection:
        for start in range(0, len(digests), _AT_ONCE):
            some = _rows.digest.in_(digests[start : start + _AT_ONCE])
            query = select(_rows.digest, _rows.answer).where(some, _rows.expires_at > now)
            found |= {row.digest: row.answer for row in (await connection.execute(query)).all()}
    return found


async def keep(database: Database, *rows: dict[str, Any]) -> None:
    """Keep answers, in place of earlier ones to the same requests; the organisation's oldest make room."""
    async with database.writing() as connection:
        for start in range(0, len(rows), _AT_ONCE):
            written = build_upsert(database.dialect, response_cache).values(list(rows[start : start + _AT_ONCE]))
            changed = {column.name: written.excluded[column.name] for column in _rows if column.name != "digest"}
            await connection.execute(written.on_conflict_do_update(index_elements=["digest"], set_=changed))
        await _trim(connection, rows[0]["organisation_id"])


async def _trim(connection: AsyncConnection, organisation_id: str) -> None:
    mine = _rows.organisation_id == organisation_id
    total = select(func.count(), func.coalesce(func.sum(_rows.size), 0)).where(mine)
    count, size = (await connection.execute(total)).one()
    oldest = select(_rows.digest, _rows.size).where(mine).order_by(_rows.kept_at, _rows.digest).limit(_AT_ONCE)
    while count > MOST_ANSWERS or size > MOST_BYTES:
        going = []
        for row in (await connection.execute(oldest)).all():
            if count <= MOST_ANSWERS and size <= MOST_BYTES:
                break
            going.append(row.digest)
            count, size = count - 1, size - row.size
        await connection.execute(delete(response_cache).where(_rows.digest.in_(going)))


async def sweep(database: Database, now: datetime) -> None:
    """Remove those whose time is over, some in each transaction: many of them are large."""
    over = select(_rows.digest).where(_rows.expires_at <= now).limit(_AT_ONCE)
    while True:
        async with database.writing(write_lock=False) as connection:
            gone = await connection.execute(delete(response_cache).where(_rows.digest.in_(over)))
        if gone.rowcount < _AT_ONCE:
            return


class KeptAnswers:
    """What is kept of an app. It is not moved with it: in the new region it is asked for again."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        return

    async def thaw(self, stores: Stores, app_id: str) -> None:
        return

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        return

    async def erase(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing(write_lock=False) as connection:
            await connection.execute(delete(response_cache).where(_rows.app_id == app_id))
