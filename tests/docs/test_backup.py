"""The commands of the pages about backups, typed as they stand there: a server starts from what they restore."""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import redis

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.docs.shell import run_shell
from tests.servers import PostgresServer, ValkeyServer, start_postgres, start_valkey

OPERATING = (ROOT / "docs" / "operating.md").read_text()
SCALING = (ROOT / "docs" / "scaling.md").read_text()
SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlYy0="
KEY = "bb_sk_" + "R" * 40


def open_client(server: ServerProcess, key: str) -> httpx.Client:
    return httpx.Client(base_url=server.address, headers={"authorization": f"Bearer {key}"}, timeout=TIMEOUT_SECONDS)


def fill_stores(server: ServerProcess, key: str) -> Mapping[str, str]:
    """Something in every store, and the account's own key beside the one that was given; what to ask for later."""
    with open_client(server, key) as calls:
        app = calls.post("/init", json={"name": "kept"}).json()["app_id"]
        for tier in ("durable", "ephemeral"):
            value = {"value": {"tier": tier}, "ttl": 3600, "ephemeral": tier == "ephemeral"}
            calls.put(f"/v1/{app}/kv/{tier}", json=value).raise_for_status()
        another = calls.post("/api-keys", json={"name": "another"}).json()["key"]
    return {"app": app, "key": another}


def fetch_answers(server: ServerProcess, app_and_key: Mapping[str, str]) -> dict[str, object]:
    with open_client(server, app_and_key["key"]) as calls:
        assert [app["id"] for app in calls.get("/apps").json()["apps"]] == [app_and_key["app"]]
        return {
            tier: calls.get(f"/v1/{app_and_key['app']}/kv/{tier}").json().get("value")
            for tier in ("durable", "ephemeral")
        }


def enable_log(server: ValkeyServer) -> None:
    with redis.Redis.from_url(server.url) as connection:
        connection.config_set("appendonly", "yes")
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while connection.info("persistence")["aof_rewrite_in_progress"]:
            assert time.monotonic() < deadline, "the log is not written"
            time.sleep(0.02)


@pytest.fixture(scope="module")
def rows() -> Iterator[PostgresServer]:
    with start_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def tools(rows: PostgresServer) -> str:
    """A PATH on which the tools of that Postgres come first."""
    return f"{rows.binaries}:{os.environ['PATH']}"


def test_a_server_starts_from_the_backup_of_a_running_one(tmp_path: Path) -> None:
    backup, restore = find_blocks(OPERATING, "sh", below="Back up")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "baobab").symlink_to(Path(sys.executable).with_name("baobab"))
    with run_server(tmp_path / "data") as server:
        app_and_key = fill_stores(server, server.key)
        run_shell(backup, tmp_path)
    run_shell(restore, tmp_path)
    with run_server(tmp_path / "restored") as restored_server:
        assert fetch_answers(restored_server, app_and_key) == {"durable": {"tier": "durable"}, "ephemeral": None}
        assert "API key  the one shown at the first start" in restored_server.log_text


def test_machines_start_from_the_dump_of_a_running_postgres(rows: PostgresServer, tools: str, tmp_path: Path) -> None:
    dump, restore = find_blocks(SCALING, "sh", below="Back up and restore")
    live, empty = rows.create_database("live"), rows.create_database("restored")
    shared_settings = {"BAOBAB_SECRET_KEY": SECRET, "BAOBAB_BOOTSTRAP_KEY": KEY}
    with run_server(tmp_path / "one", settings={**shared_settings, "BAOBAB_DATABASE_URL": live}) as server:
        app_and_key = fill_stores(server, KEY)
        run_shell(dump, tmp_path, PATH=tools, BAOBAB_DATABASE_URL=live)
    run_shell(restore, tmp_path, PATH=tools, RESTORED_DATABASE_URL=empty)
    with run_server(tmp_path / "other", settings={**shared_settings, "BAOBAB_DATABASE_URL": empty}) as restored_server:
        assert fetch_answers(restored_server, app_and_key) == {
            tier: {"tier": tier} for tier in ("durable", "ephemeral")
        }


def test_valkey_starts_from_a_snapshot_by_the_steps_of_the_page(
    rows: PostgresServer, tools: str, tmp_path: Path
) -> None:
    dump, restore = find_blocks(SCALING, "sh", below="Back up and restore")
    live, empty = rows.create_database("live_rows"), rows.create_database("restored_rows")
    shared_settings = {"BAOBAB_SECRET_KEY": SECRET, "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_KV": "valkey"}
    with start_valkey() as before, start_valkey() as after:
        settings = {**shared_settings, "BAOBAB_DATABASE_URL": live, "BAOBAB_VALKEY_URL": before.url}
        with run_server(tmp_path / "one", settings=settings) as server:
            app_and_key = fill_stores(server, KEY)
            run_shell(dump, tmp_path, PATH=tools, BAOBAB_DATABASE_URL=live)
            # The file that `valkey-cli --rdb` fetches, which is not among the tools here.
            with redis.Redis.from_url(before.url) as connection:
                connection.save()
        run_shell(restore, tmp_path, PATH=tools, RESTORED_DATABASE_URL=empty)
        after.stop()
        shutil.rmtree(after.folder / "appendonlydir")
        shutil.copyfile(before.folder / "dump.rdb", after.folder / "dump.rdb")
        after.options = ("--appendonly", "no")
        after.start()
        enable_log(after)
        after.stop()
        after.options = ()
        after.start()
        settings = {**shared_settings, "BAOBAB_DATABASE_URL": empty, "BAOBAB_VALKEY_URL": after.url}
        with run_server(tmp_path / "other", settings=settings) as restored_server:
            assert fetch_answers(restored_server, app_and_key) == {
                tier: {"tier": tier} for tier in ("durable", "ephemeral")
            }
