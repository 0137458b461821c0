"""Finds bytes in the object store that no file refers to, left by attempts that were killed.

A row is always committed before its bytes are stored. So bytes without a row belong to a deleted file. Of a present
file, everything is left over except what its row and its parts name.
"""

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import select, union

from baobab.storage.sql.database import Execute
from baobab.tools.core import AppNotFound, Services
from baobab.tools.core.stores import Stores
from baobab.tools.files.tables import FREEZES, PICTURE, THUMBNAIL, build_app_folder, file_parts, file_usage, files_table

_PAGE = 500


async def delete_leftovers(services: Services, region: str) -> int:
    """Deletes leftovers in the object store of a region, and returns how many objects it deleted."""
    stores, count = services.stores_of(region), 0
    for app_id in await _list_apps(stores):
        if await _is_settled_here(services, region, app_id):
            async for key in _find_leftovers(stores, app_id):
                count += await stores.objects.delete(key)
    return count


async def _list_apps(stores: Stores) -> list[str]:
    query = union(select(files_table.c.app_id), select(file_usage.c.app_id))
    async with stores.database.reading() as connection:
        return list((await connection.execute(query.order_by("app_id"))).scalars())


async def _is_settled_here(services: Services, region: str, app_id: str) -> bool:
    """Returns whether the app is in this region and is not being moved: bytes of a moving app may arrive before their
    rows.
    """
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return False
    async with services.stores_of(region).database.reading() as connection:
        return app.region == region and not await FREEZES.is_frozen(connection.execute, app_id)


async def _find_leftovers(stores: Stores, app_id: str) -> AsyncIterator[str]:
    folder, after = build_app_folder(app_id), ""
    while keys := await stores.objects.list(folder, after, _PAGE):
        after = keys[-1]
        by_file: dict[str, list[str]] = {}
        for key in keys:
            by_file.setdefault(key.removeprefix(folder).partition("/")[0], []).append(key)
        async with stores.database.reading() as connection:
            stored_names = await _list_kept(connection.execute, app_id, list(by_file))
        for file_id, keys_of_file in by_file.items():
            names = stored_names.get(file_id, frozenset())
            for key in keys_of_file:
                name = key.rpartition("/")[2]
                # Small copies go with their file, whose folder is only left over as a whole.
                is_of_file = bool(names) and name.startswith(PICTURE)
                if names is not None and name not in names and not is_of_file:
                    yield key


async def _list_kept(execute: Execute, app_id: str, ids: list[str]) -> dict[str, frozenset[str] | None]:
    """Returns the objects that belong to each present file. None if all of them do, because its bytes are arriving."""
    files, parts = files_table.c, file_parts.c
    query = select(files.id, files.stored_as, files.stored_at).where(files.app_id == app_id, files.id.in_(ids))
    rows: Any = (await execute(query)).all()
    of_parts = select(parts.file_id, parts.stored_as).where(parts.app_id == app_id, parts.file_id.in_(ids))
    parts_of_files: dict[str, set[str]] = {}
    for part in (await execute(of_parts)).all():
        parts_of_files.setdefault(part.file_id, set()).add(part.stored_as)
    return {
        row.id: None
        if row.stored_at is None
        else frozenset({row.stored_as, THUMBNAIL, *parts_of_files.get(row.id, ())})
        for row in rows
    }
