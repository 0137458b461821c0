"""The rows of the installation that is carried over, kept from everybody else meanwhile."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event

from baobab.storage.database import DatabaseUnavailable
from baobab.storage.migrate import current, revisions
from baobab.storage.sqlite import SqliteDatabase
from baobab.storage.transfer.errors import TransferRefused


class SourceRows(SqliteDatabase):
    """A file of rows that no other process has open, and that none can open before this one is closed.

    SQLite's exclusive locking mode is all it takes. A server, a worker or a command has a connection for as long as it
    runs, and the first connection here is refused at once while there is another. Whoever comes later is refused too;
    and since a house opens its rows before anything else, that keeps its key-value store and its objects still as well.

    It cannot be written to: `writing` finds it closed.
    """

    async def open(self) -> None:
        if not self.path.is_file():
            raise TransferRefused(f"there is no installation in {self.path}")
        # First of all, so that nothing is read before the file is ours.
        event.listen(self._engine.sync_engine, "connect", _take, insert=True)
        try:
            found = await current(self)
        except DatabaseUnavailable as exc:
            if "locked" in exc.reason:
                raise TransferRefused(f"{self.path} is in use; stop its servers, workers and commands first") from exc
            raise TransferRefused(f"{self.path} does not open: {exc.reason}") from exc
        known = revisions()
        if found not in known:
            raise TransferRefused(f"{self.path} is at revision {found or 'none'}, which this version does not know")
        if found != known[-1]:
            raise TransferRefused(f"{self.path} is at revision {found}, not {known[-1]}; run `baobab migrate` first")


def _take(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=0")
    cursor.execute("PRAGMA locking_mode=EXCLUSIVE")
    cursor.close()
