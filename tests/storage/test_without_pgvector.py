"""A Postgres without pgvector does everything else, and is completed when the extension has come."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.vectors import extension
from tests.conftest import ADDRESS, KEY
from tests.servers import start_postgres


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_postgres() as server:
        yield server.create_database("plain")


async def _create_collection(url: str, data: Path) -> httpx.Response:
    """Starts a server, creates an app and a collection, and stops the server."""
    server = Server(load_settings({"BAOBAB_DATABASE_URL": url, "BAOBAB_BOOTSTRAP_KEY": KEY}, data=data))
    owner = {"authorization": f"Bearer {KEY}"}
    async with (
        server.open(),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=server), base_url=ADDRESS, headers=owner) as client,
    ):
        app = (await client.post("/init", json={"name": "library"})).raise_for_status().json()["app_id"]
        return await client.post(f"/v1/{app}/rag/collections", json={"name": "handbook"})


async def test_a_server_starts_without_pgvector_and_makes_up_for_it_at_a_start_with_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as lacking:
        lacking.setattr(extension, "_CREATE", text("SELECT 1"))
        for _ in range(2):
            refusal = await _create_collection(url, tmp_path)
            assert refusal.status_code == 503
            assert refusal.json()["error"]["code"] == "RAG_UNAVAILABLE"
    assert (await _create_collection(url, tmp_path)).status_code == 201
