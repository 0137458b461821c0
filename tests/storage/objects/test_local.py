"""What the objects in a folder owe to files: crashes, full disks, damage, links."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from baobab.storage.objects.errors import ObjectDamaged, StoreFull, StoreUnavailable
from baobab.storage.objects.local import LocalStore
from baobab.storage.objects.store import ObjectStore
from baobab.storage.objects.stores import store_at
from tests.servers import TIMEOUT_SECONDS
from tests.storage.objects.child_process import CHUNK
from tests.storage.objects.streams import put_object, read_content

CHILD = Path(__file__).with_name("child_process.py")
DAY = 24 * 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def local(folder: Path) -> ObjectStore:
    return store_at("", folder)


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The nearest thing to a full disk that a test can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestCrashes:
    async def test_a_kill_leaves_every_object_whole_and_keeps_what_was_acknowledged(self, folder: Path) -> None:
        chance = random.Random(3)
        versions: dict[str, int] = {}
        for _ in range(4):
            start = max(versions.values(), default=0)
            command = [sys.executable, str(CHILD), str(folder), str(start)]
            child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            assert child.stdout is not None
            lines = [await child.stdout.readline() for _ in range(chance.randint(3, 25))]
            await asyncio.sleep(chance.uniform(0, 0.02))
            child.kill()
            lines += (await child.stdout.read()).splitlines(keepends=True)
            await child.wait()
            for line in lines:
                if line.endswith(b"\n"):
                    name, version = line.split()
                    versions[name.decode()] = int(version)
            store = store_at("", folder)
            for key, acknowledged_version in versions.items():
                content, head = await read_content(store, key), await store.head(key)
                assert content is not None
                assert head is not None
                number = int(head.content_type.removeprefix("version/"))
                assert content == bytes([number % 256]) * CHUNK * (number % 30)
                # Two write the shared one, and either may be behind the other.
                assert number >= acknowledged_version if key != "app_1/shared" else number > start
        assert len(versions) == 2

    async def test_what_a_kill_left_is_swept_after_a_day(self, folder: Path) -> None:
        store = LocalStore(folder, clock=lambda: 1_000_000.0 + DAY)
        await put_object(store, "app_1/a", b"1")
        drafts = folder / ".drafts"
        for name, written_at in (("old", 999_000.0), ("new", 1_001_000.0)):
            (drafts / name).write_bytes(b"half")
            os.utime(drafts / name, (written_at, written_at))
        assert await store.sweep() == 1
        assert [path.name for path in list_files(drafts)] == ["new"]
        assert await read_content(store, "app_1/a") == b"1"


class TestDisks:
    async def test_a_full_disk_refuses_the_put_and_keeps_what_was_there(self, local: ObjectStore, folder: Path) -> None:
        await put_object(local, "app_1/a", b"before")
        before = list_files(folder)
        with files_no_larger_than(1_000_000):
            for size in (3_000_000, 1_000_000):
                with pytest.raises(StoreFull):
                    await put_object(local, "app_1/a", bytes(size))
        assert await read_content(local, "app_1/a") == b"before"
        assert list_files(folder) == before

    async def test_a_full_disk_is_not_ready(self, local: ObjectStore, folder: Path) -> None:
        with files_no_larger_than(0), pytest.raises(StoreFull):
            await local.check()
        assert list_files(folder) == []

    async def test_a_folder_that_cannot_be_is_not_ready(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        store = store_at("", tmp_path / "file" / "objects")
        with pytest.raises(StoreUnavailable):
            await store.check()
        with pytest.raises(StoreUnavailable):
            await put_object(store, "app_1/a", b"1")


class TestFiles:
    async def test_the_last_object_takes_its_folders_along(self, local: ObjectStore, folder: Path) -> None:
        for key in ("app_1/a/b/c", "app_1/a/" + "x" * 500, "app_2/a"):
            await put_object(local, key, b"1")
        await local.delete("app_1/a/b/c")
        await local.delete("app_1/a/" + "x" * 500)
        await local.delete_all("app_2/")
        assert [path.name for path in folder.iterdir()] == [".drafts"]

    async def test_names_are_fit_for_every_file_system(self, local: ObjectStore, folder: Path) -> None:
        for key in ("app_1/Ä Photo: 1/2?.PNG", "app_1/" + "Ü" * 400, "app_1/🌳" * 3):
            await put_object(local, key, b"1")
        for path in folder.rglob("*"):
            assert path.name.isascii()
            assert path.name == path.name.lower()
            assert len(path.name) < 250
            assert not set(path.name) & set('<>:"|?*\\ ')

    async def test_nothing_is_left_of_what_failed(self, local: ObjectStore, folder: Path) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            uploads = [asyncio.ensure_future(put_object(local, "app_1/a", bytes(2_000_000))) for _ in range(8)]
            await asyncio.sleep(0.001)
            for upload in uploads:
                upload.cancel()
            await asyncio.gather(*uploads, return_exceptions=True)
            await local.delete("app_1/a")
        assert list_files(folder) == []

    @pytest.mark.parametrize("kept_length", [0, 5, 500, -1, -8, -13])
    async def test_a_file_that_was_cut_is_damaged(self, local: ObjectStore, folder: Path, kept_length: int) -> None:
        await put_object(local, "app_1/a", bytes(1000))
        (file,) = list_files(folder)
        file.write_bytes(file.read_bytes()[:kept_length])
        for ask in (local.get, local.head):
            with pytest.raises(ObjectDamaged):
                await ask("app_1/a")

    async def test_a_file_that_lost_some_of_its_middle_is_damaged(self, local: ObjectStore, folder: Path) -> None:
        await put_object(local, "app_1/a", bytes(1000))
        (file,) = list_files(folder)
        file.write_bytes(file.read_bytes()[100:])
        with pytest.raises(ObjectDamaged):
            await local.get("app_1/a")

    async def test_what_others_put_into_the_folder_is_not_listed(self, local: ObjectStore, folder: Path) -> None:
        await put_object(local, "app_1/a", b"1")
        for name in ("README", "%zz=", "%ff=", "A="):
            (folder / name).write_bytes(b"x")
        assert await local.list("", "", 10) == ["app_1/a"]


class TestLinks:
    async def test_a_linked_file_is_neither_read_nor_listed(
        self, local: ObjectStore, folder: Path, tmp_path: Path
    ) -> None:
        await put_object(local, "app_1/a", b"1")
        (file,) = list_files(folder)
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable):
            await local.get("app_1/a")
        assert await local.list("", "", 10) == []
        # A put takes its place, and does not write through it.
        await put_object(local, "app_1/a", b"2")
        assert await read_content(local, "app_1/a") == b"2"
        assert (tmp_path / "elsewhere").read_bytes().startswith(b"1")

    async def test_a_linked_folder_is_not_entered(self, local: ObjectStore, folder: Path, tmp_path: Path) -> None:
        await put_object(local, "app_1/a", b"1")
        (file,) = list_files(folder)
        file.parent.rename(tmp_path / "elsewhere")
        file.parent.symlink_to(tmp_path / "elsewhere")
        for ask in (local.get("app_1/a"), local.delete("app_1/a"), put_object(local, "app_1/b", b"2")):
            with pytest.raises(StoreUnavailable):
                await ask
        with pytest.raises(StoreUnavailable):
            await local.list("app_1/", "", 10)
        with pytest.raises(StoreUnavailable):
            await local.delete_all("app_1/")
        assert await local.list("", "", 10) == []
        assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [file.name]

    async def test_the_folder_itself_may_be_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "volume").mkdir()
        (tmp_path / "objects").symlink_to(tmp_path / "volume")
        store = store_at("", tmp_path / "objects")
        await put_object(store, "app_1/a", b"1")
        assert await read_content(store, "app_1/a") == b"1"
