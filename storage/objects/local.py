"""Objects in a folder: one file each, with its digest and type, which is moved into place when it is complete."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self

from baobab.storage.cancellation import run_to_completion
from baobab.storage.objects import names
from baobab.storage.objects.draft import Draft
from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.storage.objects.footer import encode_footer, read_footer
from baobab.storage.objects.key import check_content_type, check_key, check_prefix
from baobab.storage.objects.store import ObjectInfo, clip_range

_CHUNK = 256 * 1024
_ABANDONED = 24 * 3600.0
# How often a folder may vanish during a put, because the last object in it is deleted at that moment.
_ATTEMPTS = 100


class LocalStore:
    """Any number of processes may share the folder. `clock` decides which drafts are old, by comparison with file
    times.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder.resolve()
        # On the same file system, so that files can be moved; no key maps to this name.
        self._drafts = self._folder / ".drafts"
        self._clock = clock

    async def put(self, key: str, chunks: AsyncIterator[bytes], *, content_type: str, max_bytes: int) -> ObjectInfo:
        target = self._path(key)
        check_content_type(content_type)
        path = self._drafts / uuid.uuid4().hex
        draft = Draft(lambda: self._new_file(path), max_bytes)
        try:
            await draft.receive(chunks)
            info = draft.build_info(content_type)
            await run_to_completion(asyncio.to_thread(self._commit, draft, path, info, target))
            return info
        finally:
            # Shielded, because a caller that is cancelled here would leave the file open.
            await run_to_completion(asyncio.to_thread(_discard_draft, draft, path))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> LocalReader | None:
        return await asyncio.to_thread(self._open, key, self._path(key), start, end)

    async def head(self, key: str) -> ObjectInfo | None:
        reader = await self.get(key)
        if reader is None:
            return None
        await reader.aclose()
        return reader.info

    async def delete(self, key: str) -> bool:
        return await asyncio.to_thread(self._delete, self._path(key))

    async def delete_all(self, prefix: str) -> int:
        return await asyncio.to_thread(self._delete_all, check_prefix(prefix))

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        prefix = prefix and check_prefix(prefix)
        return await asyncio.to_thread(self._page, prefix, after and check_key(after), limit)

    async def sweep(self) -> int:
        return await asyncio.to_thread(self._sweep)

    async def check(self) -> None:
        await asyncio.to_thread(self._try_to_write)

    def _path(self, key: str) -> Path:
        return self._folder / names.build_path(check_key(key))

    def _new_file(self, path: Path) -> BinaryIO:
        self._drafts.mkdir(parents=True, exist_ok=True)
        return path.open("xb")

    def _commit(self, draft: Draft, path: Path, info: ObjectInfo, target: Path) -> None:
        with draft.file() as file:
            file.write(encode_footer(info))
            file.flush()
            os.fsync(file.fileno())
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self._refuse_links(target.parent)
                    path.replace(target)
                    break
                except (FileNotFoundError, FileExistsError):
                    # `mkdir` raises the second for a folder that vanishes while it checks.
                    if attempt == _ATTEMPTS:
                        raise
            # The process that created these folders may not have synced them yet.
            for folder in self._folders_above(target):
                _sync(folder)

    def _open(self, key: str, path: Path, start: int, end: int | None) -> LocalReader | None:
        try:
            self._refuse_links(path.parent)
            file = open(path, "rb", opener=_open_no_link)  # noqa: SIM115 - the reader closes it
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StoreUnavailable.because(exc) from exc
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ObjectDamaged(key, "it is not a file")
            info = read_footer(file, key)
            start, end = clip_range(info.size, start, end)
            file.seek(start)
        except OSError as exc:
            file.close()
            raise StoreUnavailable.because(exc) from exc
        except (ObjectDamaged, ValueError):
            file.close()
            raise
        return LocalReader(file, key, info, end - start)

    def _delete(self, path: Path) -> bool:
        with _translate_errors():
            self._refuse_links(path.parent)
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            _sync(path.parent)
            self._remove_empty(path)
        return True

    def _delete_all(self, prefix: str) -> int:
        count = 0
        with _translate_errors():
            folder = self._folder / names.build_folder(prefix)
            for key in self._walk(folder, prefix, ""):
                path = self._folder / names.build_path(key)
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                    count += 1
            for below, _, _ in os.walk(folder, topdown=False):
                if not _remove_folder(Path(below)):
                    _sync(Path(below))
            _sync(folder.parent)
            self._remove_empty(folder)
        return count

    def _page(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        with _translate_errors():
            return list(islice(self._walk(self._folder / names.build_folder(prefix), prefix, after), limit))

    def _walk(self, folder: Path, prefix: str, after: str) -> Iterator[str]:
        """Yields the keys below a folder, in order; all of them begin with `prefix`."""
        self._refuse_links(folder)
        pieces: list[tuple[str, str, bool]] = []
        # Another process may be deleting the folder.
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                meaning = names.parse_name(entry.name)
                if meaning is None or entry.is_symlink():
                    continue
                text, is_folder = prefix + meaning[0], meaning[1]
                if text > after or (is_folder and after.startswith(text)):
                    pieces.append((text, entry.name, is_folder))
        pieces.sort()
        for text, name, is_folder in pieces:
            if is_folder:
                yield from self._walk(folder / name, text, after)
            else:
                yield text

    def _sweep(self) -> int:
        count = 0
        with _translate_errors(), contextlib.suppress(FileNotFoundError), os.scandir(self._drafts) as entries:
            for entry in entries:
                # Another process may be sweeping too.
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < self._clock() - _ABANDONED:
                        Path(entry.path).unlink()
                        count += 1
        return count

    def _try_to_write(self) -> None:
        path = self._drafts / uuid.uuid4().hex
        with _translate_errors(), contextlib.ExitStack() as stack:
            file = stack.enter_context(self._new_file(path))
            stack.callback(path.unlink)
            file.write(b"x")

    def _refuse_links(self, folder: Path) -> None:
        """Refuses symbolic links. The store creates none, so somebody else has put it there, and it may lead out of the
        folder.
        """
        if os.path.realpath(folder) != str(folder):
            raise StoreUnavailable(f"a symbolic link on the way to {folder}")

    def _folders_above(self, path: Path) -> Iterator[Path]:
        """Yields the folders above a path, up to the store's own."""
        while path != self._folder:
            path = path.parent
            yield path

    def _remove_empty(self, path: Path) -> None:
        """Removes the folders above a path that are empty."""
        for folder in self._folders_above(path):
            if folder == self._folder or not _remove_folder(folder):
                return
            _sync(folder.parent)


class LocalReader:
    """Reads from the open file, which does not change when another file takes its name."""

    def __init__(self, file: BinaryIO, key: str, info: ObjectInfo, length: int) -> None:
        self.info = info
        self._file = file
        self._key = key
        self._remaining = length

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._remaining == 0:
            await self.aclose()
            raise StopAsyncIteration
        try:
            chunk = await asyncio.to_thread(self._file.read, min(_CHUNK, self._remaining))
        except OSError as exc:
            raise StoreUnavailable.because(exc) from exc
        if not chunk:
            await self.aclose()
            raise ObjectDamaged(self._key, "it ends too early")
        self._remaining -= len(chunk)
        return chunk

    async def aclose(self) -> None:
        # In a thread, because closing waits for a thread that a cancelled caller has left reading.
        await asyncio.to_thread(self._file.close)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StoreUnavailable.because(exc) from exc


def _discard_draft(draft: Draft, path: Path) -> None:
    """Closes the draft, and removes its file unless it has been moved into place."""
    draft.drop()
    # The sweep removes what remains; an error here must not hide why the put failed.
    with contextlib.suppress(OSError):
        path.unlink()


def _open_no_link(path: str, flags: int) -> int:
    # O_NONBLOCK, so that a named pipe cannot block the thread.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _sync(folder: Path) -> None:
    """Makes the names in a folder durable; does nothing for a folder that does not exist."""
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_folder(folder: Path) -> bool:
    """Returns False if the folder is not empty, or another process has removed it."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
