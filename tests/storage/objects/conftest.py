from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from baobab.storage.objects.store import ObjectStore
from baobab.storage.objects.stores import store_at
from tests.storage.objects.s3_server import REGION, S3Server, start_s3_server


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    with start_s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that does not fail, and credentials for it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    yield s3_process
    s3_process.fails = lambda method, path: False


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], ObjectStore]:
    """A store by the name of its engine, with nothing in it."""
    numbers = itertools.count()

    def make(engine: str) -> ObjectStore:
        folder = tmp_path / f"objects{next(numbers)}"
        if engine == "local":
            return store_at("", folder)
        server: S3Server = request.getfixturevalue("s3")
        return store_at(f"s3://{server.create_bucket()}/some/prefix?endpoint={server.address}&region={REGION}", folder)

    return make


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, make_store: Callable[[str], ObjectStore]) -> ObjectStore:
    return make_store(request.param)
