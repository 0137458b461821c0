"""Lists the files below a folder, and copies files durably."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from baobab.storage.backup.errors import NotEmpty

_CHUNK = 1 << 20


def list_files_below(folder: Path) -> Iterator[Path]:
    """Yields regular files in a fixed order. Links are not followed, since they may lead out of the folder."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def make_empty(folder: Path) -> list[Path]:
    """Creates a folder, or accepts an empty one. Returns the folders that it created, innermost first. Raises
    NotEmpty.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise NotEmpty(folder)
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return new_folders


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders that `make_empty` has created, if they are empty."""
    with contextlib.suppress(OSError):
        for path in folders:
            path.rmdir()


def copy_file(source: Path, target: Path) -> tuple[int, str]:
    """Copies a file durably. Returns the size and SHA-256 of the content."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    size, digest = 0, hashlib.sha256()
    with source.open("rb") as reading, target.open("xb") as writing:
        while chunk := reading.read(_CHUNK):
            writing.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return size, digest.hexdigest()


def measure(path: Path) -> tuple[int, str]:
    """Returns the size and SHA-256 of a file, after it has been flushed to disk."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return file.tell(), digest


def sync_folders(folder: Path) -> None:
    """Flushes the folders to disk, since a new file's name is durable only when its folder is."""
    for parent, _, _ in os.walk(folder):
        descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
