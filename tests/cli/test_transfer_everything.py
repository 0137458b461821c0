"""`baobab transfer` there and back, of an installation in which every tool of the registry has been used."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import insert, select

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.objects.stores import store_at
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.tables import metadata
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.auth.oauth_endpoints import INTERFACE_NAME
from baobab.tools.core.context import RequestContext
from tests.cli.test_transfer import is_verified, read_files, run_command
from tests.conftest import ADDRESS, KEY, Baobab
from tests.installation import reset_rate_limits
from tests.jobs import run_due_jobs, run_job
from tests.servers import TIMEOUT_SECONDS, start_postgres
from tests.tools.access import World, load_policy, open_world
from tests.tools.agents.access_policy import ASKING
from tests.tools.ai.access_policy import start_generation

SETTINGS = {"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
CALLERS = ("app key", "owner", "owner's key")
"""Who may use every tool that anybody may."""


@pytest.fixture(scope="module")
def used_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of an installation in which every tool has been used, and which nobody runs."""
    data = tmp_path_factory.mktemp("used") / "data"
    asyncio.run(_use_every_tool(data))
    return data


async def _use_every_tool(data: Path) -> None:
    async with _open_baobab(data) as baobab, open_world(baobab) as world:
        registry = baobab.application.registry
        # What destroys something comes first, so that what the others make stays.
        for tool in sorted(load_policy(), key=lambda name: registry.find(name).effect != "destructive"):
            reset_rate_limits(baobab.application.services)
            for caller in CALLERS:
                if await world.call_tool(tool, world.callers[caller]) == "ok":
                    break
        await _store_files(world)
        await _fill_what_operators_and_refusals_fill(world)
        await run_due_jobs(baobab.application)


async def _store_files(world: World) -> None:
    """A picture whose job has been polled to its end, so that its bytes are kept; and a part of an upload."""
    owner = world.callers["owner"]
    tus = {**owner.headers, "tus-resumable": "1.0.0"}
    response = await world.baobab.client.post(f"/storage/{world.app}/uploads", headers={**tus, "upload-length": "9"})
    part = {**tus, "upload-offset": "0", "content-type": "application/offset+octet-stream"}
    path = f"/storage/{world.app}/{response.headers['location']}"
    assert (await world.baobab.client.patch(path, content=b"part", headers=part)).status_code == 204
    job = await start_generation(world, "images", "baobab/picture", owner)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        path = f"/v1/{world.app}/images/completions/{job['job_id']}"
        while (await world.request("GET", path, owner.headers))["status"] not in ("completed", "failed"):
            await asyncio.sleep(0.05)


async def _fill_what_operators_and_refusals_fill(world: World) -> None:
    """The rows that no call of a person's makes: of an operator, of OAuth's endpoints, of limits, of moves."""
    application, owner = world.baobab.application, world.callers["owner"].headers
    await application.services.part(Credits).top_up(world.org, 10**9, "invoice 1")
    await application.registry.call(
        "oauth_register",
        {"redirect_uris": ["http://localhost/back"]},
        ANONYMOUS,
        RequestContext(INTERFACE_NAME, "used"),
    )
    limits = {"visibility": "authenticated", "max_runs_per_app_per_hour": 5}
    await world.request("POST", f"/v1/{world.app}/agents", owner, name="limited", graph_spec=ASKING, **limits)
    await world.request("POST", f"/v1/{world.app}/agents/limited/runs", world.callers["user"].headers, input={})
    await _create_thread(world)
    await _let_a_program_in(world)
    await _tell_a_person(world)
    refusal = await world.baobab.client.get(f"/v1/{world.app}/kv/secret")
    assert refusal.status_code == 401
    async with application.services.database.writing() as connection:
        freeze = {"family": "agents", "app_id": "app_moving000000"}
        await connection.execute(insert(metadata.tables["app_freezes"]), freeze)
        identity = {"app_id": world.app, "provider": "github", "provider_uid": "1", "user_id": "u"}
        now = application.services.clock.now()
        await connection.execute(insert(metadata.tables["user_identities"]), {**identity, "created_at": now})
    await run_job(application, "substrate_embed")


async def _create_thread(world: World) -> None:
    """A turn of a thread that an agent remembers, with a text that is long enough to be kept as a piece."""
    graph = {
        "spec_version": 1,
        "entry": "think",
        "nodes": {
            "think": {"type": "llm", "input_template": "{{ input.text }}", "output_key": "answer", "remembers": True},
            "done": {"type": "end"},
        },
        "edges": [{"from": "think", "to": "done"}],
    }
    owner, path = world.callers["owner"].headers, f"/v1/{world.app}/agents"
    await world.request("POST", path, owner, name="remembering", graph_spec=graph)
    await world.request("POST", f"{path}/remembering/runs", owner, input={"text": "long " * 500}, thread_id="t1")
    await run_due_jobs(world.baobab.application)


async def _let_a_program_in(world: World) -> None:
    """What an OAuth client that refreshes its tokens has."""
    now = world.baobab.application.services.clock.now()
    async with world.baobab.application.services.database.writing() as connection:
        key_id = await connection.scalar(select(metadata.tables["api_keys"].c.id).limit(1))
        grant = {"key_id": key_id, "client_id": "c", "client_name": "Agent", "redirect_host": "localhost"}
        more = {"scope": "mcp", "created_at": now}
        await connection.execute(insert(metadata.tables["oauth_grants"]), grant | more)
        token = {"digest": "d" * 64, "key_id": key_id, "created_at": now}
        await connection.execute(insert(metadata.tables["oauth_refresh_tokens"]), token)


async def _tell_a_person(world: World) -> None:
    """What somebody has who signs in with a passkey, and was told of a call that waits."""
    now = world.baobab.application.services.clock.now()
    async with world.baobab.application.services.database.writing() as connection:
        account_id = await connection.scalar(select(metadata.tables["accounts"].c.id).limit(1))
        owner_columns = {"account_id": account_id, "created_at": now}
        passkey = {
            "id": "p",
            "credential_id": "c",
            "public_key": "k",
            "rp_id": "localhost",
            "sign_count": 1,
            "name": "n",
        }
        await connection.execute(
            insert(metadata.tables["console_passkeys"]), owner_columns | passkey | {"name": "My phone"}
        )
        attempt = {"digest": "d" * 64, "used_at": now}
        await connection.execute(insert(metadata.tables["console_spent_attempts"]), attempt)
        notice = {"approval_id": "appr_told", "organisation_id": world.org, "state": "told", "due_at": now}
        await connection.execute(insert(metadata.tables["approval_notices"]), owner_columns | notice)
        message = {"id": "m", "channel_id": "c", "kind": "slack", "approval_ids": ["appr_told"], "status": "sent"}
        await connection.execute(insert(metadata.tables["notice_messages"]), owner_columns | message)


@contextlib.asynccontextmanager
async def _open_baobab(data: Path, **settings: str) -> AsyncIterator[Baobab]:
    server = Server(load_settings({**SETTINGS, **settings}, data=data))
    async with server.open() as application:
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            yield Baobab(application, client)


async def _empty_tables(url: str) -> set[str]:
    database = database_at(url)
    async with database.reading() as connection:
        empty = {
            table.name
            for table in metadata.sorted_tables
            if not await connection.scalar(select(select(table).exists()))
        }
    await database.close()
    return empty


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with start_postgres() as server:
        yield server.create_database("everything")


async def test_every_table_holds_rows_once_every_tool_has_been_used(used_data: Path) -> None:
    # Files need no locks of tenants, no operator drains a cell here, nobody follows a run from another process, no user
    # of an app is just signing in from an MCP client, has shown a code of an authenticator app, or has stored a file or
    # a key, no tick is due, no bot has come back from a meeting, no calendar is connected, no function has claimed or
    # remembered anything, nobody has visited a site or read a published file, and whoever wants to be told of clones
    # has changed their mind.
    assert await _empty_tables(f"sqlite:///{used_data / 'baobab.db'}") == {
        "tenant_locks",
        "draining_cells",
        "kv_outside_keys",
        "agent_live_texts",
        "user_mcp_codes",
        "user_recovery_codes",
        "file_usage_by_user",
        "substrate_attention_rule_firings",
        "meeting_usage",
        "meeting_calendar_events",
        "function_claims",
        "function_steps",
        "site_traffic",
        "file_traffic",
        "clone_webhooks",
    }


async def test_what_every_tool_has_left_goes_to_postgres_and_back(used_data: Path, target: str, tmp_path: Path) -> None:
    moved_data = tmp_path / "grown"
    there = run_command("transfer", "--data", used_data, "--to", target, "--objects", f"file://{tmp_path / 'files'}")
    assert is_verified(there), there.output
    assert await read_files(store_at("", used_data / "objects" / "local")) == await read_files(
        store_at("", tmp_path / "files")
    )
    secret = ",".join((used_data / "secret.key").read_text().split())
    servers = {"database_url": target, "objects_url": f"file://{tmp_path / 'files'}", "secret_key": secret}
    environment = {f"BAOBAB_{name.upper()}": value for name, value in servers.items()}
    async with _open_baobab(moved_data, **environment) as baobab:
        apps = (await baobab.client.get("/apps", headers=baobab.owner)).json()
        in_use = await asyncio.to_thread(run_command, "transfer", "--to", tmp_path / "early", **servers)
        assert (in_use.exit_code, "is in use" in in_use.stderr) == (1, True), in_use.output
    back = run_command("transfer", "--to", tmp_path / "back", "--objects", "", **servers)
    assert is_verified(back), back.output
    assert await read_files(store_at("", used_data / "objects" / "local")) == await read_files(
        store_at("", tmp_path / "back" / "objects" / "local")
    )
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "back", tmp_path / "back" / "secret.key")}
    assert modes == {"back": 0o700, "secret.key": 0o600}
    async with _open_baobab(tmp_path / "back") as baobab:
        assert (await baobab.client.get("/apps", headers=baobab.owner)).json() == apps
        again = await baobab.client.post("/init", json={"name": "another"}, headers=baobab.owner)
        assert again.status_code == 201
