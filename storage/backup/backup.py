"""Makes a backup: the databases as of one moment, then every other file of the data folder."""

import contextlib
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from baobab.storage.backup.errors import NoDataFolder, WithinItself
from baobab.storage.backup.manifest import File, Manifest
from baobab.storage.backup.snapshot import copy_database, open_snapshots, read_schema_revision
from baobab.storage.backup.tree import copy_file, list_files_below, make_empty, measure, remove_empty, sync_folders

ROWS = "baobab.db"
SECRET = "secret.key"  # noqa: S105 - the name of a file
_OBJECTS = "objects/"
_TEMPORARY = ("-wal", "-shm", "-journal", ".lock")
_EPHEMERAL = "kv-ephemeral.db"
_DRAFTS = f"{_OBJECTS}.drafts/"
"""Unfinished uploads."""


@dataclass(frozen=True)
class Source:
    """A data folder and its database file, which usually is in the folder."""

    data: Path
    rows: Path

    def database(self, name: str) -> Path:
        return self.rows if name == ROWS else self.data / name


def back_up(source: Source, target: Path, version: str, *, secret_key: bool = True) -> Manifest:
    """Copies a data folder into a new or empty one, while servers may use it. Raises BackupError, OSError.

    The ephemeral tier of the key-value store is left out, since a restart of the machine drops it too.
    """
    if target.resolve().is_relative_to(source.data.resolve()):
        raise WithinItself(target, source.data)
    if not source.rows.is_file():
        raise NoDataFolder(source.rows)
    new_folders = make_empty(target)
    try:
        manifest = _copy_data(source, target, version, secret_key=secret_key)
        sync_folders(target)
        manifest.write(target)
        sync_folders(target)
    except BaseException:
        _empty_folder(target)
        remove_empty(new_folders)
        raise
    return manifest


def _copy_data(source: Source, target: Path, version: str, *, secret_key: bool) -> Manifest:
    made_at = datetime.now(UTC)
    # The main database first: whoever holds its lock may wait for another store's lock, and never the reverse.
    names = [ROWS, *(name for name in _list_names(source.data) if _is_database(name) and name != ROWS)]
    files: dict[str, File] = {}
    with open_snapshots([source.database(name) for name in names]) as connections:
        revision = read_schema_revision(connections[0])
        if revision is None:
            raise NoDataFolder(source.rows)
        for name, connection in zip(names, connections, strict=True):
            (target / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            rows = copy_database(connection, target / name)
            size, digest = measure(target / name)
            files[name] = File(bytes=size, sha256=digest, rows=rows)
    # After the databases: a key that is added meanwhile does not displace the older keys, which the copies need.
    for name in _list_names(source.data):
        if _is_database(name) or (name == SECRET and not secret_key):
            continue
        # Files that are deleted meanwhile are left out.
        with contextlib.suppress(FileNotFoundError):
            size, digest = copy_file(source.data / name, target / name)
            files[name] = File(bytes=size, sha256=digest)
    return Manifest(version=version, schema_revision=revision, made_at=made_at, secret_key=SECRET in files, files=files)


def _list_names(data: Path) -> list[str]:
    """Returns the names of the files that a backup holds."""
    names = (path.relative_to(data).as_posix() for path in list_files_below(data))
    return [name for name in names if not _is_temporary(name)]


def _is_temporary(name: str) -> bool:
    # Users' files may have any name.
    if name.startswith(_OBJECTS):
        return name.startswith(_DRAFTS)
    return name.endswith((*_TEMPORARY, _EPHEMERAL))


def _is_database(name: str) -> bool:
    # Users' files may hold anything, and are never opened as databases.
    return name.endswith(".db") and not name.startswith(_OBJECTS)


def _empty_folder(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
