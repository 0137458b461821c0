"""Which other servers run on the same data folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDER = "servers"


@contextlib.contextmanager
def join_data_folder(data: Path) -> Iterator[list[int]]:
    """Registers this server in its data folder until the block ends, and yields the process ids of the others that run
    there.

    Each server locks a file of its own. The lock ends with its process, however that ends, so that a number which the
    system gives to another process later is never taken for a server.
    """
    folder = data / _FOLDER
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    own_file = folder / str(os.getpid())
    with own_file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield sorted(_find_others(folder, own_file))
        finally:
            own_file.unlink(missing_ok=True)


def _find_others(folder: Path, own_file: Path) -> Iterator[int]:
    for file in folder.iterdir():
        if file != own_file and file.name.isdecimal():
            with contextlib.suppress(FileNotFoundError), file.open() as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield int(file.name)
                else:
                    file.unlink(missing_ok=True)
