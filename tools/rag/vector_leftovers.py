"""Deletes the files of vectors whose collections are gone: deleted, deleted with their app, or moved to a Postgres."""

import asyncio
from pathlib import Path

from sqlalchemy import select

from baobab.storage.sql.database import Database
from baobab.storage.vectors.folders import delete_folder, list_folders
from baobab.tools.core import Services
from baobab.tools.rag.tables import collections
from baobab.tools.rag.vector_search import VectorSearch

_AT_ONCE = 200


async def delete_left_files(services: Services) -> int:
    """Deletes the folders of collections that no database of files has, and returns how many they were.

    A collection that is there may lose its folder if its app is moved at this very moment: its next search makes the
    folder anew from the rows.
    """
    root: Path = services.options.data / "vectors"
    # Listed before the rows are read: a collection that is made in between is not among them.
    folders = await asyncio.to_thread(list_folders, root)
    databases = dict.fromkeys(stores.database for stores in services.regions.values())
    live_collections = set[tuple[str, str]]()
    apps = sorted({folder.app_id for folder in folders})
    for database in databases:
        if database.dialect == "sqlite":
            for start in range(0, len(apps), _AT_ONCE):
                live_collections |= await _list_collections(database, apps[start : start + _AT_ONCE])
    leftover_folders = [folder for folder in folders if (folder.app_id, folder.collection_id) not in live_collections]
    for folder in leftover_folders:
        services.of(VectorSearch).close(folder.app_id, folder.collection_id)
        await asyncio.to_thread(delete_folder, folder.path)
    return len(leftover_folders)


async def _list_collections(database: Database, apps: list[str]) -> set[tuple[str, str]]:
    query = select(collections.c.app_id, collections.c.id).where(collections.c.app_id.in_(apps))
    async with database.reading() as connection:
        return {(row.app_id, row.id) for row in await connection.execute(query)}
