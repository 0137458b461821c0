"""The folders of vector files: one `<app>/<collection>-<dimensions>` for each collection and number of dimensions."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class VectorFolder(NamedTuple):
    """The vectors of one collection with that many dimensions."""

    app_id: str
    collection_id: str
    path: Path


def name_folder(root: Path, app_id: str, collection_id: str, dimensions: int) -> Path:
    return root / app_id / f"{collection_id}-{dimensions}"


def list_folders(root: Path) -> list[VectorFolder]:
    """Returns the folders that exist."""
    paths = sorted(root.glob("*/*-*"))
    return [VectorFolder(path.parent.name, path.name.rpartition("-")[0], path) for path in paths]


def delete_folder(path: Path) -> None:
    """Deletes a folder with its files. A process that has mapped a file keeps it until it is unmapped."""
    with contextlib.suppress(FileNotFoundError):
        with lock_writers(path):
            shutil.rmtree(path)
        # Another collection of the app may have come meanwhile.
        with contextlib.suppress(OSError):
            path.parent.rmdir()


@contextmanager
def lock_writers(folder: Path) -> Iterator[None]:
    """Locks a folder, so that only one process writes to it at a time. Raises FileNotFoundError if the folder was
    deleted.
    """
    path = folder / "lock"
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # While this process waited, the folder may have been deleted, and another one made in its place.
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                yield
                return
