"""The composition: an installation opens, works, closes, and opens again on its data."""

import asyncio
import importlib
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from baobab import composition, tools
from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.migrate import SchemaTooNew
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from tests.conftest import ADDRESS, KEY

ROOT = Path(__file__).parent.parent
OWNER = {"authorization": f"Bearer {KEY}"}
CONTEXT = RequestContext("test", "req-1")


def build_server(data: Path, *, import_interfaces: Callable[[], Any] | None = None, **variables: str) -> Server:
    return Server(
        load_settings({"BAOBAB_BOOTSTRAP_KEY": KEY, **variables}, data=data), import_interfaces=import_interfaces
    )


def open_client(of: Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=of), base_url=ADDRESS)


async def test_what_was_stored_is_there_when_the_installation_opens_again(tmp_path: Path) -> None:
    first = build_server(tmp_path)
    async with first.open(), open_client(first) as http:
        app = (await http.post("/init", json={"name": "shop"}, headers=OWNER)).json()["app_id"]
        assert (await http.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=OWNER)).status_code == 204
    again = build_server(tmp_path)
    async with again.open(), open_client(again) as http:
        assert (await http.get(f"/v1/{app}/kv/a", headers=OWNER)).json() == {"value": 1}
        assert (await http.get("/health/ready")).json()["status"] == "ready"


async def test_the_first_key_is_given_once_and_works(tmp_path: Path) -> None:
    first = Server(load_settings({}, data=tmp_path))
    async with first.open(), open_client(first) as http:
        assert first.first_key is not None
        assert re.fullmatch(r"bb_sk_[A-Za-z0-9]{40}", first.first_key)
        me = await http.get("/platform/me", headers={"authorization": f"Bearer {first.first_key}"})
        assert me.status_code == 200
    again = Server(load_settings({}, data=tmp_path))
    async with again.open():
        assert again.first_key is None


async def test_the_folder_and_its_secret_are_the_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "made" / "data"
    async with build_server(data).open():
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert stat.S_IMODE((data / "secret.key").stat().st_mode) == 0o600


async def test_counts_that_were_not_written_yet_are_written_when_the_installation_closes(tmp_path: Path) -> None:
    first = build_server(tmp_path)
    async with first.open(), open_client(first) as http:
        app = (await http.post("/init", json={"name": "shop"}, headers=OWNER)).json()["app_id"]
        for _ in range(3):
            await http.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=OWNER)
    again = build_server(tmp_path)
    async with again.open(), open_client(again) as http:
        rows = (await http.get(f"/v1/{app}/audit-logs", params={"category": "data"}, headers=OWNER)).json()["logs"]
    assert sum(row["event_data"]["count"] for row in rows) == 3


async def test_two_servers_on_one_folder_take_notice_of_each_other(tmp_path: Path) -> None:
    one, other = build_server(tmp_path), build_server(tmp_path)
    async with one.open(), other.open() as second, open_client(one) as here, open_client(other) as there:
        app = (await here.post("/init", json={"name": "shop"}, headers=OWNER)).json()["app_id"]
        await second.services.notices.poll()
        await here.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=OWNER)
        assert (await there.get(f"/v1/{app}/kv/a", headers=OWNER)).json() == {"value": 1}
        assert (await here.delete(f"/apps/{app}", headers=OWNER)).status_code == 200
        await second.services.notices.poll()
        assert (await there.get(f"/v1/{app}/kv/a", headers=OWNER)).status_code == 404


async def test_two_servers_that_open_an_empty_folder_at_once_agree_on_everything(tmp_path: Path) -> None:
    servers = [build_server(tmp_path) for _ in range(3)]

    async def open_and_create(one: Server) -> int:
        async with one.open(), open_client(one) as http:
            return (await http.post("/init", json={"name": "shop"}, headers=OWNER)).status_code

    assert sorted(await asyncio.gather(*(open_and_create(one) for one in servers))) == [200, 200, 201]


@pytest.mark.parametrize("broken_path", ["baobab.db", "kv/local/durable.db"])
async def test_an_installation_whose_store_is_no_database_does_not_open_and_leaves_nothing_running(
    tmp_path: Path, broken_path: Any
) -> None:
    path = tmp_path / broken_path
    async with build_server(tmp_path).open():
        pass
    for file in path.parent.glob("*"):
        if file.is_file() and file.name != "secret.key":
            file.write_bytes(b"this is no database" * 1000)
    before = asyncio.all_tasks()
    with pytest.raises((DatabaseUnavailable, StoreUnavailable)):
        async with build_server(tmp_path).open():
            pass
    assert asyncio.all_tasks() == before


async def test_a_database_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    settings = load_settings({}, data=tmp_path)
    async with (
        composition.open_application(settings) as application,
        application.services.database.writing() as connection,
    ):
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNew):
        async with composition.open_application(settings):
            pass


@pytest.mark.parametrize(
    ("variables", "domain"),
    [
        ({}, "localhost"),
        ({"BAOBAB_HOST": "::1"}, "localhost"),
        ({"BAOBAB_HOST": "0.0.0.0"}, "localhost"),  # noqa: S104
        ({"BAOBAB_BASE_URL": "https://baobab.example:8443"}, "baobab.example"),
    ],
)
def test_apps_stand_below_the_name_of_the_server(variables: Any, domain: Any) -> None:
    assert composition.build_options(load_settings(variables)).base_domain == domain


async def test_sign_up_can_be_closed(tmp_path: Path) -> None:
    server = build_server(tmp_path, BAOBAB_SIGNUP="closed")
    body = {"email": "ada@example.com", "password": "correct Horse 7!", "name": "Ada"}
    async with server.open(), open_client(server) as http:
        refusal = await http.post("/platform/signup", json=body)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_FORBIDDEN")


async def test_an_installation_without_interfaces_can_be_used_through_its_registry(tmp_path: Path) -> None:
    async with composition.open_application(load_settings({"BAOBAB_REGION": "north"}, data=tmp_path)) as application:
        assert await application.registry.call("system_regions", {}, ANONYMOUS, CONTEXT) == {"regions": ["north"]}


def test_every_domain_folder_is_a_line_of_the_list_of_toolsets() -> None:
    folders = {path.parent.name for path in (ROOT / "tools").glob("*/__init__.py")}
    assert {*tools.DOMAINS, "core"} == folders


def test_the_folder_of_the_rest_door_never_shadows_the_standard_library() -> None:
    assert not (ROOT / "http" / "__init__.py").exists()


@pytest.mark.parametrize("room", ["http", "mcp_server", "runtime", "storage", "tools"])
def test_every_room_is_reached_through_a_link_in_the_package(room: Any) -> None:
    link = ROOT / "src" / "baobab" / room
    assert link.is_symlink()
    assert link.readlink() == Path("../..") / room


async def test_a_part_that_does_not_load_is_told_by_readiness_and_loaded_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
    failures = [ImportError("half of a module"), missing]

    def import_interfaces() -> Any:
        if failures:
            raise failures.pop()
        return importlib.import_module("baobab.interfaces")

    server = build_server(tmp_path, import_interfaces=import_interfaces)
    async with server.open() as application, open_client(server) as http:
        while application.services.lifecycle.parts["mcp"] == "starting":
            await asyncio.sleep(0.01)
        ready, page = await http.get("/health/ready"), await http.get("/openapi.json")
        mcp = ready.json()["checks"]["mcp"]
        assert (ready.status_code, mcp, page.status_code) == (
            503,
            "failed: the Python module fastapi is not installed",
            503,
        )
        assert page.headers["retry-after"]
        while (await http.get("/health/ready")).json()["status"] != "ready":
            await asyncio.sleep(0.01)
        assert (await http.get("/openapi.json")).status_code == 200
        assert application.services.lifecycle.missing == {}
    warnings = [record for record in caplog.records if "is not installed" in record.message]
    assert [(record.__dict__["missing"], record.exc_info) for record in warnings] == [("fastapi", None)]
