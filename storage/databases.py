"""Which database an address means."""

from pathlib import Path

from baobab.storage.database import Database
from baobab.storage.sqlite import SqliteDatabase

SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")


def database_at(url: str) -> Database:
    """The database of a URL: `sqlite:///FILE` or `postgresql://...`. It is not open yet."""
    if url.startswith(SQLITE):
        return SqliteDatabase(Path(url.removeprefix(SQLITE)))
    # Loading the driver costs a tenth of a second that an embedded start need not pay.
    from baobab.storage.postgres import PostgresDatabase

    return PostgresDatabase(url)
