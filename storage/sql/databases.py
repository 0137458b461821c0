"""Chooses the kind of database by its URL."""

from pathlib import Path

from baobab.storage.sql.database import Database
from baobab.storage.sql.sqlite import SqliteDatabase

SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")


def database_at(url: str, notices_url: str = "") -> Database:
    """Returns the database of a URL (`sqlite:///FILE` or `postgresql://...`), not open yet.

    notices_url: where to listen for notices, if not there.
    """
    if url.startswith(SQLITE):
        return SqliteDatabase(Path(url.removeprefix(SQLITE)))
    # Importing the driver takes a tenth of a second, which a start on SQLite can save.
    from baobab.storage.sql.postgres import PostgresDatabase

    return PostgresDatabase(url, notices_url=notices_url)
