"""A store whose files are damaged is said to be, to callers and to balancers: trying again helps nobody."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from baobab.server import Server
from baobab.settings import load_settings
from tests.conftest import ADDRESS, KEY

OWNER = {"authorization": f"Bearer {KEY}"}


@asynccontextmanager
async def open_client(data: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A server on files, whatever column is tested."""
    server = Server(load_settings({"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise"}, data=data))
    async with server.open():
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=OWNER) as client:
            yield client


async def create_app(client: httpx.AsyncClient) -> str:
    app: str = (await client.post("/init", json={"name": "shop"})).json()["app_id"]
    return app


async def fetch_readiness(client: httpx.AsyncClient) -> tuple[int, dict[str, str]]:
    answer = await client.get("/health/ready")
    return answer.status_code, answer.json()["checks"]


def damage_page(file: Path, table: str) -> None:
    """Overwrite the first page of a table."""
    with closing(sqlite3.connect(file)) as rows:
        rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = rows.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = rows.execute("PRAGMA page_size").fetchone()
    overwrite(file, (page - 1) * size, size)


def overwrite(file: Path, offset: int, size: int) -> None:
    with file.open("r+b") as raw:
        raw.seek(offset)
        raw.write(b"\xff" * size)


async def test_a_key_value_store_that_is_damaged_says_so_once_it_is_met(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_client(tmp_path) as client:
        app = await create_app(client)
        for batch in range(20):
            ops = [{"op": "set", "key": f"k{batch:02}:{number:02}", "value": "x" * 500} for number in range(50)]
            assert (await client.post(f"/v1/{app}/kv/_batch", json={"ops": ops})).status_code == 200
    file = tmp_path / "kv" / "local" / "kv.db"
    overwrite(file, file.stat().st_size // 3, 100_000)
    async with open_client(tmp_path) as client:
        keys = [f"k{batch:02}:{number:02}" for batch in range(20) for number in range(50)]
        answers = [await client.get(f"/v1/{app}/kv/{key}") for key in keys]
        response = next(answer for answer in answers if answer.status_code >= 500)
        assert (response.status_code, response.json()["error"]) == (500, "store_damaged")
        assert "retry-after" not in response.headers
        assert "backup" in response.json()["remediation"]
        assert any(record.levelname == "ERROR" and "damaged" in record.message for record in caplog.records)
        status, checks = await fetch_readiness(client)
        assert (status, checks["kv:local"], checks["database"]) == (503, "damaged", "ok")


async def test_rows_that_are_damaged_say_so_once_they_are_met(tmp_path: Path) -> None:
    async with open_client(tmp_path) as client:
        app = await create_app(client)
    damage_page(tmp_path / "baobab.db", "audit_logs")
    async with open_client(tmp_path) as client:
        assert (await fetch_readiness(client))[0] == 200
        response = await client.get(f"/v1/{app}/audit-logs")
        assert (response.status_code, response.json()["error"]["code"]) == (500, "STORE_DAMAGED")
        status, checks = await fetch_readiness(client)
        assert (status, checks["database"]) == (503, "damaged")


async def test_pages_that_meet_damaged_rows_say_so_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_client(tmp_path) as client:
        await create_app(client)
    damage_page(tmp_path / "baobab.db", "sqlite_autoindex_console_sessions_1")
    damage_page(tmp_path / "baobab.db", "sqlite_autoindex_console_sessions_2")
    damage_page(tmp_path / "baobab.db", "console_sessions")
    async with open_client(tmp_path) as client:
        cookie = {"cookie": "baobab_console=" + "s" * 43}
        page = await client.get("/console", headers=cookie)
        assert (page.status_code, "damaged" in page.text) == (500, True)
        assert (await client.get("/console/events", headers=cookie)).status_code == 500
        assert any(record.levelname == "ERROR" and "damaged" in record.message for record in caplog.records)
