"""The meaning of the address of an object store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from baobab.storage.objects.stores import store_at
from tests.storage.objects.streams import put_object, read_content


async def test_no_address_is_the_folder_itself(tmp_path: Path) -> None:
    await put_object(store_at("", tmp_path / "objects"), "app_1/a", b"1")
    assert (tmp_path / "objects").is_dir()


async def test_a_folder_elsewhere_is_named_by_its_url(tmp_path: Path) -> None:
    await put_object(store_at(f"file://{tmp_path}/my%20objects", tmp_path / "unused"), "app_1/a", b"1")
    assert await read_content(store_at("", tmp_path / "my objects"), "app_1/a") == b"1"
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    "url",
    [
        "objects",
        "/var/objects",
        "file://objects",
        "file:objects",
        "file:///objects?x=1",
        "http://bucket",
        "s3://",
        "s3:///prefix",
        "s3://bucket#part",
        "s3://bucket?endpoint=minio:9000",
        "s3://bucket?regoin=eu-west-1",
        "s3://bucket?region",
        "s3://user:top-secret@bucket",
        "s3://bucket?secret_access_key=top-secret",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"objects|BUCKET") as refusal:
        store_at(url, tmp_path)
    assert "top-secret" not in str(refusal.value)


def test_objects_in_a_folder_need_no_driver(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from baobab.storage.objects.stores import store_at;"
        f"store_at('', Path({str(tmp_path)!r})); print('obstore' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert process.stdout.strip() == b"False"
