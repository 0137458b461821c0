"""Copies rows table by table, parents before children. The rows in the target show how far the transfer has come."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Select, Table, func, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError

from baobab.storage.sql.database import INSTALLATION, Database, DatabaseConnection, DatabaseUnavailable
from baobab.storage.sql.tables import metadata
from baobab.storage.transfer.digest import Digest, hash_item
from baobab.storage.transfer.errors import TransferRefused

_BATCH = 200
_BOOKKEEPING = {"alembic_version"}
_LOCKS = {"tenant_locks"}
"""Tables whose rows exist only to be locked, and are created again when they are needed."""
_FULL_TEXT = re.compile(r"_fts(_\w+)?$")
"""SQLite's full-text indexes, which triggers fill from their tables."""


async def survey(database: Database) -> dict[str, Digest]:
    async with database.reading() as connection:
        tables = [table for table in metadata.sorted_tables if table.name not in _LOCKS]
        return {table.name: await _digest(connection, table) for table in tables}


async def find_unknown_tables(database: Database) -> list[str]:
    """Returns the names of tables that this version does not know and that are not copied."""
    async with database.reading() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    return sorted(name for name in set(names) - set(metadata.tables) - _BOOKKEEPING if not _FULL_TEXT.search(name))


async def find_occupied_table(connection: DatabaseConnection) -> str | None:
    """Returns the name of a table that holds rows; None if all are empty or missing."""
    existing_names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    for table in metadata.sorted_tables:
        if table.name in existing_names and await connection.scalar(select(select(table).exists())):
            return table.name
    return None


async def copy(source: Database, target: Database) -> None:
    """Copies the rows that the target does not have yet. The source must be the one that the transfer began with."""
    for table in metadata.sorted_tables:
        if table.name in _LOCKS:
            continue
        try:
            await _copy(source, target, table)
        except (DatabaseUnavailable, IntegrityError) as exc:
            reason = exc.reason if isinstance(exc, DatabaseUnavailable) else str(exc.orig).partition("\n")[0]
            raise TransferRefused(f"table {table.name}: {reason}; run the same command again to continue") from exc


async def set_sequences(connection: DatabaseConnection) -> None:
    """Sets Postgres's sequences behind the largest number in use. SQLite needs no such step."""
    if connection.dialect.name != "postgresql":
        return
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is None:
            continue
        largest = await connection.scalar(select(func.max(column)))
        if largest is not None:
            await connection.execute(
                text("SELECT setval(pg_get_serial_sequence(:table, :column), :largest)"),
                {"table": table.name, "column": column.name, "largest": largest},
            )


async def _copy(source: Database, target: Database, table: Table) -> None:
    async with target.reading() as connection:
        # Batches are committed in order, so the target holds exactly the first `done` rows.
        copied_count = await connection.scalar(select(func.count()).select_from(table))
    remaining = select(table).order_by(*table.primary_key.columns).offset(copied_count)
    async with source.reading() as connection, connection.stream(_fetch_in_batches(remaining)) as rows:
        async for batch in rows.mappings().partitions():
            async with target.writing(lock=INSTALLATION, bulk=True) as into:
                await into.execute(insert(table), [dict(row) for row in batch])


async def _digest(connection: DatabaseConnection, table: Table) -> Digest:
    digest = Digest()
    async with connection.stream(_fetch_in_batches(select(table))) as rows:
        async for row in rows:
            digest.add(list(row))
    return digest


async def find_difference(source: Database, target: Database, table_name: str) -> str | None:
    """Returns the key of the first row that is not the same in both databases, such as `id=5`; None if all are."""
    table = metadata.tables[table_name]
    names = [column.name for column in table.primary_key.columns]
    hashes: list[dict[str, bytes]] = []
    for database in (source, target):
        hashes_by_key: dict[str, bytes] = {}
        async with database.reading() as connection, connection.stream(_fetch_in_batches(select(table))) as rows:
            async for row in rows.mappings():
                hashes_by_key[", ".join(f"{name}={row[name]}" for name in names)] = hash_item(list(row.values()))
        hashes.append(hashes_by_key)
    return next((key for key in hashes[0] | hashes[1] if hashes[0].get(key) != hashes[1].get(key)), None)


def _fetch_in_batches(statement: Select[Any]) -> Select[Any]:
    return statement.execution_options(yield_per=_BATCH)
