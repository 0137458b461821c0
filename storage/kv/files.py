"""The two SQLite files of the store, prepared under a lock that every process takes when it opens them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from baobab.storage.kv.errors import StoreDamaged, StoreUnavailable
from baobab.storage.kv.tier_file import SCHEMA

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_COPIES = """
SELECT copy.space, count(*), sum(length(copy.key) + length(copy.value))
FROM ephemeral.entry AS copy CROSS JOIN main.entry USING (space, key)
GROUP BY copy.space
"""


class Faults:
    """Translates SQLite's errors, and remembers damage once it was found."""

    def __init__(self) -> None:
        self._damage: str | None = None

    def translate(self, cause: BaseException) -> StoreUnavailable:
        """Returns the error for callers. The failed commit of one tier has its own cause attached."""
        if isinstance(cause.__cause__ or cause, (apsw.CorruptError, apsw.NotADBError)):
            self._damage = f"{type(cause).__name__}: {cause}"
            return StoreDamaged(self._damage)
        return StoreUnavailable(f"{type(cause).__name__}: {cause}")

    def require_sound(self) -> None:
        """Raises StoreDamaged if damage was found."""
        if self._damage is not None:
            raise StoreDamaged(self._damage)


class Files:
    def __init__(self, folder: Path, boot_id: str | None = None) -> None:
        self.folder = folder
        self.durable = folder / "kv.db"
        self.ephemeral = folder / "kv-ephemeral.db"
        self._boot_id = boot_id or _read_boot_id()

    def prepare(self, busy_timeout: float) -> None:
        """Creates what is missing, and deletes an ephemeral file that is older than the last boot of the machine."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Processes that switch a new file to WAL at the same moment fail with "locked", whatever their timeout is.
        # SQLite's own lock on a file of its own is a file lock that works on every platform.
        with _open_connection(self.folder / "kv.lock", busy_timeout) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            with _open_connection(self.durable, busy_timeout) as durable:
                _initialise(durable)
            if self.ephemeral.exists() and not self._is_of_this_boot(busy_timeout):
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self.ephemeral}{suffix}").unlink(missing_ok=True)
            with _open_connection(self.ephemeral, busy_timeout) as ephemeral:
                _initialise(ephemeral)
                ephemeral.execute("CREATE TABLE IF NOT EXISTS boot (id TEXT NOT NULL)")
                ephemeral.execute("INSERT INTO boot SELECT ? WHERE NOT EXISTS (SELECT 1 FROM boot)", (self._boot_id,))
            with _open_connection(self.durable, busy_timeout) as connection:
                connection.execute("ATTACH ? AS ephemeral", (str(self.ephemeral),))
                _drop_copies(connection)

    def _is_of_this_boot(self, busy_timeout: float) -> bool:
        # Without synchronous writes, a crash of the machine may damage the file; a crash of a process cannot.
        with _open_connection(self.ephemeral, busy_timeout) as connection:
            try:
                recorded_id = connection.execute("SELECT id FROM boot").get
                return recorded_id == self._boot_id and (self._boot_id != "" or _is_sound(connection))
            except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
                # No other error proves damage: a busy file is one that another process is using.
                return False


@contextmanager
def _open_connection(path: Path, busy_timeout: float) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(int(busy_timeout * 1000))
        yield connection
    finally:
        connection.close()


def _initialise(connection: apsw.Connection) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(SCHEMA)


def _drop_copies(connection: apsw.Connection) -> None:
    """Deletes the ephemeral copy of keys that are in both tiers after a crash between the two commits of a group."""
    if not connection.execute(_COPIES).fetchall():
        return
    # Locks both files, the durable one first, as every writer does, so that no group is half committed now.
    connection.execute("BEGIN IMMEDIATE")
    for space, keys, size in connection.execute(_COPIES).fetchall():
        connection.execute(
            "UPDATE ephemeral.usage SET keys = keys - ?2, bytes = bytes - ?3 WHERE space = ?1", (space, keys, size)
        )
        connection.execute(
            "DELETE FROM ephemeral.entry WHERE space = ?1 AND key IN (SELECT key FROM main.entry WHERE space = ?1)",
            (space,),
        )
    connection.execute("DELETE FROM ephemeral.usage WHERE keys = 0")
    connection.execute("COMMIT")


def _is_sound(connection: apsw.Connection) -> bool:
    return bool(connection.execute("PRAGMA quick_check").get == "ok")


def _read_boot_id() -> str:
    """Returns the boot id; empty if the platform has none, in which case the file is checked instead."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
