"""The rows of cached answers, in the database of the app's region, or of the home region for calls without an app."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select

from baobab.storage.sql.database import Database, DatabaseConnection
from baobab.storage.sql.tables import build_upsert
from baobab.tools.ai.tables import response_cache
from baobab.tools.core.stores import Stores

MOST_ANSWERS, MOST_BYTES = 10_000, 256 * 2**20
"""The most cached answers of one organisation in one database, and their bytes."""
_AT_ONCE = 100

_rows = response_cache.c


async def find(database: Database, digest: str, now: datetime) -> str | None:
    """Returns the sealed answer, unless it has expired."""
    query = select(_rows.answer).where(_rows.digest == digest, _rows.expires_at > now)
    async with database.reading() as connection:
        return (await connection.execute(query)).scalar()


async def find_several(database: Database, digests: list[str], now: datetime) -> dict[str, str]:
    """Returns the sealed answers that have not expired, by their digests."""
    answers: dict[str, str] = {}
    async with database.reading() as connection:
        for start in range(0, len(digests), _AT_ONCE):
            condition = _rows.digest.in_(digests[start : start + _AT_ONCE])
            query = select(_rows.digest, _rows.answer).where(condition, _rows.expires_at > now)
            answers |= {row.digest: row.answer for row in (await connection.execute(query)).all()}
    return answers


async def keep(database: Database, *rows: dict[str, Any]) -> None:
    """Saves answers, replacing earlier ones to the same requests, and removes the organisation's oldest if needed."""
    async with database.writing(lock=rows[0]["organisation_id"]) as connection:
        for start in range(0, len(rows), _AT_ONCE):
            insertion = build_upsert(database.dialect, response_cache).values(list(rows[start : start + _AT_ONCE]))
            new_values = {column.name: insertion.excluded[column.name] for column in _rows if column.name != "digest"}
            await connection.execute(insertion.on_conflict_do_update(index_elements=["digest"], set_=new_values))
        await _trim(connection, rows[0]["organisation_id"])


async def _trim(connection: DatabaseConnection, organisation_id: str) -> None:
    of_organisation = _rows.organisation_id == organisation_id
    total = select(func.count(), func.coalesce(func.sum(_rows.size), 0)).where(of_organisation)
    count, size = (await connection.execute(total)).one()
    oldest = (
        select(_rows.digest, _rows.size).where(of_organisation).order_by(_rows.kept_at, _rows.digest).limit(_AT_ONCE)
    )
    while count > MOST_ANSWERS or size > MOST_BYTES:
        oldest_digests = []
        for row in (await connection.execute(oldest)).all():
            if count <= MOST_ANSWERS and size <= MOST_BYTES:
                break
            oldest_digests.append(row.digest)
            count, size = count - 1, size - row.size
        await connection.execute(delete(response_cache).where(_rows.digest.in_(oldest_digests)))


async def sweep(database: Database, now: datetime) -> None:
    """Removes expired answers, a few in each transaction, because many are large."""
    expired_digests = select(_rows.digest).where(_rows.expires_at <= now).limit(_AT_ONCE)
    while True:
        async with database.writing(lock=None) as connection:
            result = await connection.execute(delete(response_cache).where(_rows.digest.in_(expired_digests)))
        if result.rowcount < _AT_ONCE:
            return


class KeptAnswers:
    """An app's cached answers. They do not move with the app: the new region starts with an empty cache."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        return

    async def thaw(self, stores: Stores, app_id: str) -> None:
        return

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        return

    async def count(self, stores: Stores, app_id: str) -> Mapping[str, int]:
        return {}

    async def erase(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing(lock=None) as connection:
            await connection.execute(delete(response_cache).where(_rows.app_id == app_id))
