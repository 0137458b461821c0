"""What the objects in a bucket owe to the server, and to what else may be in the bucket."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from pathlib import Path

import boto3
import pytest

from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.storage.objects.s3 import S3Store
from baobab.storage.objects.store import ObjectStore
from baobab.storage.objects.stores import store_at
from tests.storage.objects.s3_server import REGION, S3Server
from tests.storage.objects.streams import put_object, read_content

LARGE = bytes(range(256)) * 40_000


@pytest.fixture
def bucket(s3: S3Server) -> str:
    return s3.create_bucket()


@pytest.fixture
def store(s3: S3Server, bucket: str, tmp_path: Path) -> ObjectStore:
    return store_at(f"s3://{bucket}?endpoint={s3.address}&region={REGION}", tmp_path)


class TestFailures:
    @pytest.mark.parametrize(
        ("method", "words"), [("PUT", "partNumber=2"), ("POST", "uploads"), ("POST", "uploadId"), ("PUT", "partNumber")]
    )
    async def test_an_upload_that_fails_in_any_of_its_parts_leaves_what_was_there(
        self, store: ObjectStore, s3: S3Server, method: str, words: str
    ) -> None:
        await put_object(store, "app_1/a", b"before")
        s3.fails = lambda asked_method, path: asked_method == method and words in path
        for key in ("app_1/a", "app_1/b"):
            with pytest.raises(StoreUnavailable):
                await put_object(store, key, LARGE)
        assert await read_content(store, "app_1/a") == b"before"
        assert await store.list("", "", 10) == ["app_1/a"]

    async def test_a_server_that_fails_once_is_asked_again(self, store: ObjectStore, s3: S3Server) -> None:
        failed_requests: set[str] = set()

        def once(method: str, path: str) -> bool:
            request = f"{method} {path}"
            is_repeated = request in failed_requests
            failed_requests.add(request)
            return not is_repeated

        s3.fails = once
        await put_object(store, "app_1/a", b"1")
        assert await read_content(store, "app_1/a") == b"1"
        assert await store.list("", "", 10) == ["app_1/a"]
        assert await store.delete("app_1/a") is True
        assert failed_requests

    async def test_a_server_that_fails_is_unavailable_and_never_empty(self, store: ObjectStore, s3: S3Server) -> None:
        await put_object(store, "app_1/a", b"1")
        s3.fails = lambda method, path: True
        calls = [
            put_object(store, "app_1/a", b"2"),
            store.get("app_1/a"),
            store.get("app_1/a", start=1),
            store.head("app_1/a"),
            store.delete("app_1/a"),
            store.delete_all("app_1/"),
            store.list("app_1/", "", 1),
            store.check(),
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * len(calls)

    async def test_nobody_at_the_address_is_unavailable(self, s3: S3Server, tmp_path: Path) -> None:
        store = store_at("s3://bucket?endpoint=http://127.0.0.1:1", tmp_path)
        with pytest.raises(StoreUnavailable):
            await store.check()
        with pytest.raises(StoreUnavailable):
            await put_object(store, "app_1/a", b"1")

    async def test_a_server_that_never_answers_is_not_ready(self, s3: S3Server, tmp_path: Path) -> None:
        # Its connections are made by the operating system, and nobody takes them.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            store = S3Store("bucket", tmp_path, endpoint=f"http://127.0.0.1:{port}", timeout=0.05)
            with pytest.raises(StoreUnavailable, match="within"):
                await store.check()

    async def test_without_the_bucket_it_is_not_ready(self, s3: S3Server, tmp_path: Path) -> None:
        store = store_at(f"s3://no-such-bucket?endpoint={s3.address}", tmp_path)
        with pytest.raises(StoreUnavailable):
            await store.check()
        with pytest.raises(StoreUnavailable):
            await put_object(store, "app_1/a", b"1")

    async def test_an_object_replaced_while_a_part_is_asked_for_is_read_from_one_version(
        self, store: ObjectStore, s3: S3Server, bucket: str
    ) -> None:
        await put_object(store, "app_1/a", b"first version")
        running_loop = asyncio.get_running_loop()
        heads = 0

        def replace_after_the_first_look(method: str, path: str) -> bool:
            nonlocal heads
            heads += method == "HEAD"
            if method == "GET" and heads == 1:
                heads = 2
                asyncio.run_coroutine_threadsafe(put_object(store, "app_1/a", b"second"), running_loop).result(10)
            return False

        s3.fails = replace_after_the_first_look
        assert await read_content(store, "app_1/a", 2, 100) == b"cond"


class TestBuckets:
    async def test_an_object_carries_its_type_and_digest(self, store: ObjectStore, s3: S3Server, bucket: str) -> None:
        await put_object(store, "app_1/a", b"1", "image/png")
        client = boto3.client("s3", endpoint_url=s3.address, region_name=REGION)
        head = client.head_object(Bucket=bucket, Key="app_1/a")
        client.close()
        assert head["ContentType"] == "image/png"
        assert head["Metadata"] == {"sha256": hashlib.sha256(b"1").hexdigest()}

    async def test_what_others_put_there_is_damaged(self, store: ObjectStore, s3: S3Server, bucket: str) -> None:
        s3.send("PUT", f"{bucket}/app_1/a", b"1")
        for ask in (store.get, store.head):
            with pytest.raises(ObjectDamaged):
                await ask("app_1/a")

    async def test_the_folders_of_a_console_are_not_listed(self, store: ObjectStore, s3: S3Server, bucket: str) -> None:
        s3.send("PUT", f"{bucket}/app_1/")
        await put_object(store, "app_1/a", b"1")
        assert await store.list("", "", 10) == ["app_1/a"]

    async def test_two_prefixes_of_a_bucket_are_two_stores(self, s3: S3Server, bucket: str, tmp_path: Path) -> None:
        one, other = (
            store_at(f"s3://{bucket}/{prefix}?endpoint={s3.address}", tmp_path) for prefix in ("main", "main2")
        )
        await put_object(one, "app_1/a", b"1")
        assert await other.list("", "", 10) == []
        assert await other.delete_all("app_1/") == 0
        await put_object(other, "app_1/a", b"2")
        assert await read_content(one, "app_1/a") == b"1"

    async def test_more_than_a_page_of_the_server_is_listed_and_deleted(
        self, store: ObjectStore, s3: S3Server, bucket: str
    ) -> None:
        keys = [f"app_1/{number:04}" for number in range(1010)]
        s3.fill(bucket, keys)
        assert await store.list("app_1/", "", 2000) == keys
        assert await store.list("app_1/", keys[4], 1003) == keys[5:1008]
        assert await store.delete_all("app_1/") == 1010
        assert await store.list("", "", 1) == []

    async def test_nothing_stays_on_this_machine(self, store: ObjectStore, tmp_path: Path) -> None:
        await put_object(store, "app_1/a", LARGE)
        assert list(tmp_path.iterdir()) == []


class TestAddresses:
    async def test_the_address_beats_the_environment(
        self, s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        store = store_at(f"s3://{bucket}?endpoint={s3.address}&region={REGION}", tmp_path)
        await store.check()
