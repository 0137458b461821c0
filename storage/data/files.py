"""The tables of apps in SQLite files, one for each app. Recently used files stay open."""

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Literal, TypeVar

from baobab.storage.data import functions
from baobab.storage.fair_slots import FairSlots
from baobab.storage.sql.database import DatabaseBusy, StatementTimeout, Unit
from baobab.storage.sql.deadline import Deadline
from baobab.storage.sql.sqlite import SqliteDatabase
from baobab.storage.sql.statements import Statements

T = TypeVar("T")

_MOST_OPEN = 100
_STATEMENT_SECONDS = 15.0
_QUICK_SECONDS = 0.25
"""A read that takes longer is slow: it begins anew, in a turn of the few slow ones."""
_LOOK_SECONDS = 0.2


class FileStore:
    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: OrderedDict[str, _AppFile] = OrderedDict()
        self._opening = asyncio.Lock()
        # Threads that call functions of ours hold up all others. Places for quick reads become free at once, so slow
        # reads delay nobody but each other, and one app's no other app's.
        self._quick = FairSlots(8, of_key=3, of_caller=2)
        self._slow = FairSlots(3, of_key=2, of_caller=1)

    @property
    def row_security(self) -> None:
        return None

    async def open_row_security(self) -> None:
        """Does nothing, because SQLite has no roles."""

    def name_table(self, app_id: str, table: str) -> str:
        del app_id
        return f'"{table}"'

    async def exists(self, app_id: str) -> bool:
        # A file may be there without tables, after a first change that failed.
        query = "SELECT count(*) FROM sqlite_master WHERE name = '_catalogue'"
        return self._path(app_id).exists() and bool(
            await self.read(app_id, lambda tables: tables.rows(query)[0][0], quick=True)
        )

    async def read(
        self,
        app_id: str,
        work: Callable[[Statements], T],
        unit: Unit | None = None,
        *,
        quick: bool = False,
        single: bool = False,
        caller: Hashable | None = None,
    ) -> T:
        present = self._open.get(app_id)
        if quick and present is not None and present.has_free_reader and present.was_in_place:
            self._open.move_to_end(app_id)
            try:
                return present.read_now(work, single=single)
            except DatabaseBusy:
                pass
        try:
            async with self._quick.acquire_slot(app_id, caller):
                return await self._read_within(_QUICK_SECONDS, app_id, work)
        except StatementTimeout:
            pass
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_STATEMENT_SECONDS):
                    await stack.enter_async_context(self._slow.acquire_slot(app_id, caller))
            except TimeoutError as exc:
                raise StatementTimeout("other slow reads were running") from exc
            return await self._read_within(_STATEMENT_SECONDS, app_id, work)

    async def _read_within(self, seconds: float, app_id: str, work: Callable[[Statements], T]) -> T:
        async with self._use(app_id, reads=True) as file, file.reading(seconds=seconds) as connection:
            return await connection.run_while_awaited(work)

    async def write(self, app_id: str, work: Callable[[Statements], T], unit: Unit | None = None) -> T:
        async with self._use(app_id) as file:
            return await file.transact(work)

    async def alter(self, app_id: str, work: Callable[[Statements], T], unit: Unit | None = None) -> T:
        async with self._use(app_id) as file:
            return await file.alter(work)

    async def list_apps(self, *, without: tuple[str, str] | None = None) -> list[str]:
        return await asyncio.to_thread(_list_apps, self._folder, without)

    async def erase(self, app_id: str, unit: Unit | None = None) -> None:
        async with self._opening:
            file = self._open.pop(app_id, None)
            if file is not None:
                await file.close()
            await asyncio.to_thread(_remove_files, self._path(app_id))

    async def close(self) -> None:
        files, self._open = self._open, OrderedDict()
        for file in files.values():
            await file.close()

    def _path(self, app_id: str) -> Path:
        return self._folder / f"{app_id}.db"

    @asynccontextmanager
    async def _use(self, app_id: str, *, reads: bool = False) -> AsyncIterator["_AppFile"]:
        """Yields the open file of an app. reads: whether the file may have been erased by another process a moment
        ago.
        """
        file = self._open.get(app_id)
        if file is None or not (file.was_in_place if reads else file.is_in_place):
            file = await self._open_file(app_id)
        self._open.move_to_end(app_id)
        file.users += 1
        try:
            yield file
        finally:
            file.users -= 1

    async def _open_file(self, app_id: str) -> "_AppFile":
        async with self._opening:
            file = self._open.get(app_id)
            if file is not None:
                if file.is_in_place:
                    return file
                # Another process has erased it, and perhaps begun another.
                await self._open.pop(app_id).close()
            while len(self._open) >= _MOST_OPEN:
                idle = next((name for name, file in self._open.items() if not file.users), None)
                if idle is None:
                    break
                await self._open.pop(idle).close()
            file = _AppFile(self._path(app_id), statement_seconds=_STATEMENT_SECONDS)
            await file.open()
            self._open[app_id] = file
            return file


class _AppFile(SqliteDatabase):
    readers = 6
    """One more than the quick and slow reads of an app."""
    users = 0
    """How many transactions use it now."""
    _inode = 0
    _looked_at = 0.0

    async def open(self) -> None:
        await super().open()
        self._inode = self.path.stat().st_ino

    @property
    def was_in_place(self) -> bool:
        """Returns what `is_in_place` returned at most a fifth of a second ago: asking the disk takes as long as reading
        a row.
        """
        return time.monotonic() - self._looked_at < _LOOK_SECONDS or self.is_in_place

    @property
    def is_in_place(self) -> bool:
        """Returns whether the open file is still the one at its path."""
        self._looked_at = time.monotonic()
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _prepare(self, connection: sqlite3.Connection, deadline: Deadline) -> None:
        # The `like` of SQL tells letters from capitals.
        connection.execute("PRAGMA case_sensitive_like=ON")
        # Ours replaces it, which it would undo.
        functions.add_to(connection, deadline)


def _list_apps(folder: Path, without: tuple[str, str] | None) -> list[str]:
    files = sorted(folder.glob("*.db"))
    return [path.stem for path in files if without is None or not _has_column(path, *without)]


def _has_column(path: Path, table: str, column: str) -> bool:
    """Returns whether a file has a column of a table, or is empty because its first change has failed."""
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        is_empty = not connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0]
    return column in columns or is_empty


def _remove_files(path: Path) -> None:
    for suffix in (".db-wal", ".db-shm", ".db", ".lock"):
        path.with_suffix(suffix).unlink(missing_ok=True)
