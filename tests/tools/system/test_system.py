"""The installation itself: health, readiness, regions, llms.txt, metrics."""

import dataclasses
import re
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from baobab.http.home_page import missing_page
from baobab.http.rest_app import RestApp
from baobab.server import Server
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.sql.sqlite import SqliteDatabase
from baobab.tools import toolsets
from baobab.tools.core.errors import name_operations
from baobab.tools.core.registry import Registry
from tests.conftest import ADDRESS, Baobab
from tests.installation import get_asgi_app
from tests.storage.kv.memory_engine import MemoryEngine

pytestmark = pytest.mark.own_installation

ROOT = Path(__file__).parents[3]


async def fetch_readiness(services: Any) -> Any:
    """/health/ready of an installation with these services."""
    rest_app = RestApp(Registry(toolsets()).bind(services), missing_page(""), hosts=["127.0.0.1"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=rest_app), base_url=ADDRESS) as client:
        return await client.get("/health/ready")


async def test_health_says_that_the_server_is_alive(baobab: Baobab) -> None:
    answer = await baobab.client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "service": "baobab"})


async def test_a_server_whose_stores_answer_is_ready(baobab: Baobab) -> None:
    answer = await baobab.client.get("/health/ready")
    checks = {"database": "ok", "kv:local": "ok", "objects:local": "ok"}
    body = answer.json()
    assert body["checks"].pop("mcp") in ("starting", "ok")
    assert (answer.status_code, body) == (200, {"status": "ready", "service": "baobab", "checks": checks})


@pytest.mark.parametrize("unreadable", ["a file that is no database", "a folder"])
async def test_a_server_whose_database_cannot_be_read_is_not_ready_and_says_so(
    baobab: Baobab, tmp_path: Path, unreadable: Any
) -> None:
    path = tmp_path / "broken.db"
    if unreadable == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"this is no database, but long enough to be read as one" * 100)
    database = SqliteDatabase(path)
    answer = await fetch_readiness(dataclasses.replace(baobab.application.services, database=database))
    await database.close()
    assert answer.status_code == 503
    assert answer.json()["status"] == "not_ready"
    checks = answer.json()["checks"]
    expected_state = "failed" if unreadable == "a folder" else "damaged"
    assert [name for name, state in checks.items() if state == expected_state] == ["database"]


@pytest.mark.parametrize(("region", "status", "word"), [("local", 503, "not_ready"), ("far", 200, "degraded")])
async def test_a_region_whose_key_value_store_is_closed_is_named_and_counts_where_it_is_our_own(
    baobab: Baobab, tmp_path: Path, region: Any, status: Any, word: str
) -> None:
    services = baobab.application.services
    closed_engine, memory = SqliteEngine(tmp_path / "closed"), MemoryEngine()
    await closed_engine.open()
    await closed_engine.close()
    await memory.open()
    ours = services.regions["local"]
    open_ = {name: dataclasses.replace(ours, kv=memory) for name in ("local", "far")}
    regions = {**open_, region: dataclasses.replace(ours, kv=closed_engine)}
    answer = await fetch_readiness(dataclasses.replace(services, regions=regions))
    await memory.close()
    assert (answer.status_code, answer.json()["status"]) == (status, word)
    checks = answer.json()["checks"]
    assert [name for name, state in checks.items() if state == "failed"] == [f"kv:{region}"]


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/v1/regions", "/llms.txt", "/llms-full.txt"])
async def test_what_is_public_answers_even_with_a_credential_that_does_not_count(baobab: Baobab, path: str) -> None:
    stale = ({"authorization": "Bearer bb_sk_revoked"}, {"authorization": "Basic x"}, {"apikey": "nonsense"})
    for headers in ({}, *stale):
        assert (await baobab.client.get(path, headers=headers)).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/v1/regions", "/llms.txt"])
async def test_head_answers_as_get_does_and_other_methods_are_405(baobab: Baobab, path: str) -> None:
    assert (await baobab.client.head(path)).status_code == 200
    refusal = await baobab.client.post(path)
    assert refusal.status_code == 405
    assert "GET" in refusal.headers["allow"]


async def test_the_regions_are_listed_to_everybody(baobab: Baobab) -> None:
    assert (await baobab.client.get("/v1/regions")).json() == {"regions": ["local"]}


async def test_llms_txt_is_a_guide_in_plain_text_and_llms_full_txt_names_every_tool_with_its_route(
    baobab: Baobab,
) -> None:
    guide = await baobab.client.get("/llms.txt")
    assert guide.headers["content-type"] == "text/plain; charset=utf-8"
    assert len(guide.text) < 14_000
    assert f"{ADDRESS}/llms-full.txt" in guide.text
    answer = await baobab.client.get("/llms-full.txt")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    lines = answer.text.splitlines()
    for tool in baobab.application.registry.tools.values():
        line = next(line for line in lines if line.startswith(f"- {tool.name} "))
        assert tool.rest is None or f"`{tool.rest.method} {tool.rest.path}`" in line
        assert name_operations(tool.summary) in line
        assert ("REST only" in line) is not tool.mcp
        number = re.search(r"who ([0-9]+)\)", line)
        who = f"Who {number[1]}: " if number else "Who: "
        above = lines[: lines.index(line)]
        assert next(each for each in reversed(above) if each.startswith(who)) == who + tool.access.description


async def test_the_quick_start_of_llms_txt_works_as_it_is_written(baobab: Baobab) -> None:
    text = (await baobab.client.get("/llms.txt")).text
    assert f"POST {ADDRESS}/init" in text
    app = (await baobab.client.post("/init", json={"name": "todo"}, headers=baobab.owner)).json()["app_id"]
    for step in (f"PUT {ADDRESS}/v1/APP_ID/kv/greeting", f"GET {ADDRESS}/v1/APP_ID/kv/greeting"):
        assert step in text
    path = f"/v1/{app}/kv/greeting"
    assert (await baobab.client.put(path, json={"value": "hello"}, headers=baobab.owner)).status_code == 204
    assert (await baobab.client.get(path, headers=baobab.owner)).json() == {"value": "hello"}
    rule = {"read": "owner", "write": "owner"}
    assert "_expose/user:%7Buser.id%7D:**" in text
    response = await baobab.client.put(f"/v1/{app}/kv/_expose/user:%7Buser.id%7D:**", json=rule, headers=baobab.owner)
    assert response.status_code == 204


async def test_llms_txt_says_what_the_contract_asks_of_it(baobab: Baobab) -> None:
    text = (await baobab.client.get("/llms.txt")).text
    rights = ("config_access_mode", "run_as", "budget", "data_undo", "Over REST only", "rls/policies", "at\nmost 1000")
    for topic in rights:
        assert topic in text
    topics = ("Quick start", "Pattern", "Errors", "remediation", "next_actions", "Good habits", "/openapi.json", "/mcp")
    for topic in topics:
        assert topic in text


class TestMetrics:
    async def test_who_reads_the_data_folder_reads_them(self, baobab: Baobab) -> None:
        await baobab.client.get("/v1/regions")
        await baobab.client.get("/apps")
        text = await baobab.fetch_metrics()
        assert stat.S_IMODE(baobab.application.settings.metrics_file.stat().st_mode) == 0o600
        for words in (('door="rest"', 'tool="system_regions"'), ('tool="apps_list"', '"AUTH_REQUIRED"')):
            lines = [line for line in text.splitlines() if all(word in line for word in words)]
            assert any(line.endswith(" 1.0") for line in lines), words

    @pytest.mark.parametrize("host", ["baobab.example", "shop.localhost"])
    async def test_a_request_by_another_name_is_refused(self, baobab: Baobab, host: Any) -> None:
        assert (await baobab.client.get("/metrics", headers={"host": host})).status_code in (401, 404, 421)

    @pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "203.0.113.7"])
    async def test_no_address_opens_them_since_behind_a_proxy_all_clients_look_local(
        self, baobab: Baobab, peer: Any
    ) -> None:
        transport = httpx.ASGITransport(app=get_asgi_app(baobab.client), client=(peer, 1234))
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            for headers in ({}, baobab.owner, {"authorization": "Bearer "}):
                refusal = await client.get("/metrics", headers=headers)
                assert refusal.status_code == 401
                assert "baobab_call" not in refusal.text

    async def test_the_token_stays_over_a_restart(self, baobab: Baobab) -> None:
        token = baobab.application.settings.metrics_file.read_text()
        async with Server(baobab.application.settings).open():
            await baobab.fetch_metrics()
        assert baobab.application.settings.metrics_file.read_text() == token

    async def test_they_tell_no_keys_apps_or_paths(self, baobab: Baobab) -> None:
        app = await baobab.create_app()
        await baobab.client.get(f"/v1/{app}/kv/my-key", headers=baobab.owner)
        text = await baobab.fetch_metrics()
        assert app not in text
        assert "my-key" not in text


class TestMetricsWithAToken:
    @pytest.fixture
    def settings(self) -> Any:
        return {"BAOBAB_METRICS_TOKEN": "scrape"}

    @pytest.mark.parametrize(
        ("authorization", "status"),
        [
            ("Bearer scrape", 200),
            ("Bearer scrap", 401),
            ("Bearer ", 401),
            ("Bearer é", 401),
            ("scrape", 401),
            (None, 401),
        ],
    )
    async def test_the_token_alone_opens_them(self, baobab: Baobab, authorization: Any, status: Any) -> None:
        headers = {} if authorization is None else {"authorization": authorization.encode()}
        assert (await baobab.client.get("/metrics", headers=headers)).status_code == status


async def test_every_series_that_the_docs_name_is_there_and_every_series_that_is_there_is_in_the_docs(
    baobab: Baobab,
) -> None:
    await baobab.client.get("/apps", headers=baobab.owner)
    await baobab.client.get("/apps")
    text = await baobab.fetch_metrics()
    exported_names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE baobab_")}
    table = (ROOT / "docs/operating.md").read_text().partition("\n## Metrics")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `baobab_")]
    documented_names = {name for row in rows for name in re.findall(r"`(baobab_\w+)`", row.split("|")[1])}
    assert exported_names == documented_names


async def test_metrics_tell_the_state_of_jobs_runs_approvals_and_stores(baobab: Baobab) -> None:
    body = {"name": "agent", "approval": "write"}
    agent = (await baobab.client.post("/api-keys", json=body, headers=baobab.owner)).json()["key"]
    response = await baobab.client.post("/init", json={"name": "x"}, headers={"authorization": f"Bearer {agent}"})
    assert response.status_code == 428
    lines = (await baobab.fetch_metrics()).splitlines()
    assert "baobab_approvals_pending 1.0" in lines
    assert 'baobab_agent_runs{status="running"} 0.0' in lines
    assert 'baobab_jobs{state="given_up"} 0.0' in lines
    for store in ("database:local", "kv:local", "objects:local"):
        assert f'baobab_store_up{{store="{store}"}} 1.0' in lines


async def test_a_server_that_is_being_stopped_says_draining_and_still_answers(baobab: Baobab) -> None:
    baobab.application.services.lifecycle.draining = True
    ready = await baobab.client.get("/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (503, "draining")
    assert (await baobab.client.get("/apps", headers=baobab.owner)).status_code == 200
    assert "baobab_draining 1.0" in (await baobab.fetch_metrics()).splitlines()
