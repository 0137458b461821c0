"""An empty database beside the target and of its kind, in which a transfer is tried."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import SQLITE, database_at
from baobab.storage.sql.migrate import migrate


class TrialNotPossible(Exception):
    """The account of the target may create no database. The message is the server's own."""


@contextlib.asynccontextmanager
async def open_trial(target_url: str) -> AsyncIterator[tuple[Database, Path]]:
    """Yields a database of this version's schema without rows, and a folder beside it. Both are gone afterwards.

    Raises TrialNotPossible, and DatabaseUnavailable.
    """
    async with contextlib.AsyncExitStack() as stack:
        beside = Path(target_url.removeprefix(SQLITE)).parent if target_url.startswith(SQLITE) else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="baobab-trial-", dir=beside)))
        if beside is None:
            url = await stack.enter_async_context(_create_database(target_url))
        else:
            url = f"{SQLITE}{folder / 'baobab.db'}"
        database = database_at(url)
        stack.push_async_callback(database.close)
        await database.open()
        await migrate(database)
        yield database, folder


@contextlib.asynccontextmanager
async def _create_database(target_url: str) -> AsyncIterator[str]:
    """Yields the address of a new database on the server of another one, and drops it afterwards."""
    name = f"baobab_trial_{secrets.token_hex(6)}"
    identifier = sql.Identifier(name)
    try:
        connection = await psycopg.AsyncConnection.connect(target_url, autocommit=True)
        async with connection:
            await connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
    except psycopg.Error as exc:
        raise TrialNotPossible(str(exc).partition("\n")[0]) from exc
    try:
        yield urlsplit(target_url)._replace(path=f"/{name}").geturl()
    finally:
        async with await psycopg.AsyncConnection.connect(target_url, autocommit=True) as connection:
            await connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
