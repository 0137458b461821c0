"""Whether an installation lives, or is a copy of one that lives elsewhere (docs/decisions/0042-copies.md).

A database remembers its place: of a file its number in the file system, of Postgres the cluster and the database. A
copy has another place than it remembers. `baobab restore` and `baobab transfer` also leave a note in the folder, which
the next start takes into the database.
"""

import asyncio
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select, text, update

from baobab.storage.identity import installation_table
from baobab.storage.secrets import write_private
from baobab.storage.sql.database import INSTALLATION, Database, Execute
from baobab.storage.sql.sqlite import SqliteDatabase

NOTE = "copy.txt"
"""In a data folder that is a copy, until a server has started on it: how it became one."""

_MAY_ASK_CLUSTER = text(
    "SELECT coalesce(has_function_privilege(to_regprocedure('pg_control_system()'), 'execute'), false)"
)
_POSTGRES_PLACE = text(
    "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()) AS oid"
    " FROM pg_control_system()"
)


@dataclass(frozen=True, slots=True)
class CopyMark:
    """Says that an installation is a copy: since when, and how that is known, as the end of a sentence."""

    since: datetime
    how: str


def write_note(data: Path, how: str) -> None:
    """Makes a data folder a copy for the next start on it. how: a clause such as `it was restored from a backup`."""
    write_private(data / NOTE, f"{how}\n")


def remove_note(data: Path) -> None:
    (data / NOTE).unlink(missing_ok=True)


async def find_place(database: Database) -> str | None:
    """Returns where a database is, in a form that a copy of it does not share; None if that cannot be known."""
    if isinstance(database, SqliteDatabase):
        return f"file:{(await asyncio.to_thread(os.stat, database.path)).st_ino}"
    async with database.reading() as connection:
        if not await connection.scalar(_MAY_ASK_CLUSTER):
            return None
        cluster, oid = (await connection.execute(_POSTGRES_PLACE)).one()
        return f"postgres:{cluster}/{oid}"


async def load_mark(database: Database, data: Path, now: datetime) -> CopyMark | None:
    """Returns the mark of a copy, or None for an installation that lives. Marks what is found to be a copy now.

    data: the folder, whose note counts if the rows are files of it.
    """
    place = await find_place(database)
    note = data / NOTE if isinstance(database, SqliteDatabase) else None
    async with database.reading() as connection:
        row = (await connection.execute(select(installation_table))).one()
    is_settled = row.copied_at is not None or row.place == place or place is None
    if is_settled and (note is None or not note.exists()):
        return _read_mark(row)
    async with database.writing(lock=INSTALLATION) as connection:
        row = (await connection.execute(select(installation_table))).one()
        how = note.read_text().strip() if note is not None and note.exists() else None
        if how is None and row.copied_at is None and row.place is not None and place not in (None, row.place):
            how = "its database is not at the place where it lived"
        if how is not None:
            await connection.execute(update(installation_table).values(copied_at=now, copied_how=how))
        elif row.place is None and row.copied_at is None:
            await connection.execute(update(installation_table).values(place=place))
        row = (await connection.execute(select(installation_table))).one()
    if note is not None:
        # Only now that the database says so.
        note.unlink(missing_ok=True)
    return _read_mark(row)


async def read_mark(database: Database) -> CopyMark | None:
    """Returns the mark of a copy as the database has it, without looking for signs of one."""
    async with database.reading() as connection:
        return _read_mark((await connection.execute(select(installation_table))).one())


async def write_mark(execute: Execute, mark: CopyMark) -> None:
    await execute(update(installation_table).values(copied_at=mark.since, copied_how=mark.how))


async def remove_mark(execute: Execute, place: str | None) -> None:
    """Makes a copy the installation that lives, at its place."""
    await execute(update(installation_table).values(place=place, copied_at=None, copied_how=None))


async def forget_place(execute: Execute) -> None:
    """Lets the next start take the place where the database is then. What was a copy stays one."""
    await execute(update(installation_table).values(place=None))


def _read_mark(row: Any) -> CopyMark | None:
    return None if row.copied_at is None else CopyMark(row.copied_at, row.copied_how)
