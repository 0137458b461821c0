"""Migrates a database to the schema of this version. Alembic is imported only if there is something to apply."""

import contextlib
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from baobab.storage.sql.database import INSTALLATION, Database, LockTimeout

_ATTEMPTS = 6
"""The attempts, each of ten seconds, which is how long Postgres lets a statement wait for a lock."""
_FOLDER = Path(__file__).parents[1] / "migrations"


class SchemaTooNew(Exception):
    """The database was migrated by a later version of Baobab."""


def list_revisions() -> list[str]:
    """Returns the revisions of this version, oldest first; a file's name starts with its revision."""
    return sorted(path.name.partition("_")[0] for path in (_FOLDER / "versions").glob("[0-9]*.py"))


async def read_revision(database: Database) -> str | None:
    """Returns the revision of a database; None for an empty one."""
    async with database.reading() as connection:
        if not await connection.run_sync(lambda sync: inspect(sync).has_table("alembic_version")):
            return None
        revision: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
        return revision


async def migrate(database: Database) -> list[str]:
    """Applies the missing migrations in one transaction, and returns their revisions. If several processes call it at
    once, each waits up to a minute for the others.
    """
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(LockTimeout):
            return await _migrate(database)
    return await _migrate(database)


async def list_missing_revisions(database: Database) -> list[str]:
    """Lists the revisions that `migrate` would apply, oldest first. Raises SchemaTooNew."""
    before = await read_revision(database)
    revisions = list_revisions()
    if before is not None and before not in revisions:
        raise SchemaTooNew(
            f"the database is at revision {before}; this version knows {revisions[0]} to {revisions[-1]}"
        )
    return revisions[revisions.index(before) + 1 if before else 0 :]


async def _migrate(database: Database) -> list[str]:
    missing_revisions = await list_missing_revisions(database)
    if missing_revisions:
        async with database.writing(lock=INSTALLATION, bulk=True) as connection:
            await connection.run_sync(_upgrade)
    return missing_revisions


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
