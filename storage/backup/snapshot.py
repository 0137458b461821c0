"""Copies SQLite files as of one moment, while other processes keep writing to them.

Servers open some of these files with `sqlite3` and others with apsw. A process must not open one file with both; this
module is used in a process of its own, so it opens all of them with apsw. It neither writes to the files nor
checkpoints them.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

from baobab.storage.backup.errors import StoreBusy

_TIMEOUT_MS = 30_000
_PAGES = 1024
"""Pages copied at a time: some megabytes, after which an interrupt is noticed."""


@contextlib.contextmanager
def open_snapshots(files: Sequence[Path]) -> Iterator[list[apsw.Connection]]:
    """Yields a connection for each file; all of them see the same moment, at which nobody wrote to any file.

    The write locks are held, in the order of the files, only until every connection has begun to read, which takes
    milliseconds. What one store says about another is then true in the copies too.
    """
    with contextlib.ExitStack() as readers:
        with contextlib.ExitStack() as locks:
            for file in files:
                lock = _open_connection(locks, file, apsw.SQLITE_OPEN_READWRITE)
                _execute(lock, file, "BEGIN IMMEDIATE")
            connections = []
            for file in files:
                reader = _open_connection(readers, file, apsw.SQLITE_OPEN_READONLY)
                # BEGIN alone does not start a read transaction.
                _execute(reader, file, "BEGIN; SELECT count(*) FROM sqlite_master")
                connections.append(reader)
        yield connections


def copy_database(source: apsw.Connection, target: Path) -> dict[str, int]:
    """Copies what a connection sees into a new file. Returns the number of rows of each table in the copy.

    The copy is a single file without a WAL; whoever opens it next chooses a journal mode.
    """
    connection = apsw.Connection(str(target))
    try:
        connection.execute("PRAGMA synchronous=FULL")
        with connection.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(_PAGES)
        connection.execute("PRAGMA journal_mode=DELETE")
        if connection.execute("PRAGMA quick_check").get != "ok":
            raise StoreBusy(source.filename, "SQLite finds it damaged")
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
        ).fetchall()
        return {str(name): _count_rows(connection, str(name)) for (name,) in names}
    except apsw.Error as exc:
        raise StoreBusy(source.filename, exc) from exc
    finally:
        connection.close()


def read_schema_revision(rows: apsw.Connection) -> str | None:
    """Returns the migration revision of a database; None if it is not one of ours."""
    if not rows.execute("SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'").get:
        return None
    revision: str | None = rows.execute("SELECT version_num FROM alembic_version").get
    return revision


def _open_connection(stack: contextlib.ExitStack, file: Path, flags: int) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(file), flags=flags)
    except apsw.Error as exc:
        raise StoreBusy(file, exc) from exc
    stack.callback(connection.close)
    connection.set_busy_timeout(_TIMEOUT_MS)
    # The last connection to close would checkpoint, which servers do only while they hold the write lock.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def _execute(connection: apsw.Connection, file: Path, statement: str) -> None:
    try:
        connection.execute(statement).fetchall()
    except apsw.Error as exc:
        raise StoreBusy(file, exc) from exc


def _count_rows(connection: apsw.Connection, table: str) -> int:
    quoted_table = table.replace('"', '""')
    count: int = connection.execute(f'SELECT count(*) FROM "{quoted_table}"').get  # noqa: S608 - a name, quoted
    return count
