"""The commands that do one thing and end; and the worker."""

import json
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from baobab.cli import main
from tests.cli.server_process import TIMEOUT_SECONDS, run_baobab, start_baobab
from tests.ports import free_port

KEY = "bb_sk_" + "B" * 40


def read_error_line(process: subprocess.CompletedProcess[str]) -> str:
    """Returns the only line that a failed command has printed."""
    assert process.returncode == 1, process
    assert process.stdout == ""
    (line,) = process.stderr.splitlines()
    return line


def test_init_prints_a_key_once(tmp_path: Path) -> None:
    first, second = (run_baobab("init", "--data", tmp_path / "data") for _ in range(2))
    assert re.fullmatch(r"bb_sk_[A-Za-z0-9]{40}\n", first.stdout)
    assert first.returncode == second.returncode == 0
    assert second.stdout == ""
    assert "baobab keys create" in second.stderr


def test_init_takes_the_bootstrap_key(tmp_path: Path) -> None:
    process = run_baobab("init", "--data", tmp_path / "data", settings={"BAOBAB_BOOTSTRAP_KEY": KEY})
    assert process.stdout == f"{KEY}\n"


def test_migrate_makes_the_schema_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    dry, first, second = (
        run_baobab("migrate", *flags, "--data", tmp_path / "data") for flags in (("--dry-run",), (), ())
    )
    assert dry.stdout.startswith("Would apply 0001")
    assert first.stdout.startswith("Applied 0001")
    assert second.stdout == "The database is up to date.\n"


def test_openapi_prints_the_document(tmp_path: Path) -> None:
    document = json.loads(run_baobab("openapi", settings={"BAOBAB_BASE_URL": "https://api.example.com"}).stdout)
    assert document["openapi"].startswith("3.1")
    assert document["servers"] == [{"url": "https://api.example.com"}]
    assert "/v1/{app_id}/kv/{key}" in document["paths"]


def test_tools_prints_the_catalogue() -> None:
    text = run_baobab("tools").stdout
    payload = json.loads(run_baobab("tools", "--json").stdout)
    for tool in payload:
        assert f"  {tool['name']} " in text
        assert tool["input_schema"]["type"] == "object"


def test_sigterm_ends_the_worker(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        worker = start_baobab(("worker", "--data", tmp_path / "data"), stderr)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while "running" not in log.read_text():
        assert worker.poll() is None, log.read_text()
        assert time.monotonic() < deadline, "it does not say that it runs"
        time.sleep(0.02)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(TIMEOUT_SECONDS) == 0
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"BAOBAB_PROT": "9000"}, ("BAOBAB_PROT", "BAOBAB_PORT")),
        ({"BAOBAB_PORT": "many"}, ("BAOBAB_PORT", "integer")),
        ({"BAOBAB_WORKERS": "0"}, ("BAOBAB_WORKERS",)),
        ({"BAOBAB_BASE_URL": "example.com"}, ("BAOBAB_BASE_URL", "http")),
        ({"BAOBAB_DATABASE_URL": "mysql://db/x"}, ("BAOBAB_DATABASE_URL", "sqlite")),
        ({"BAOBAB_TRUSTED_PROXIES": "everyone"}, ("BAOBAB_TRUSTED_PROXIES",)),
        ({"BAOBAB_SECRET_KEY": "too-short"}, ("BAOBAB_SECRET_KEY",)),
        ({"BAOBAB_BOOTSTRAP_KEY": "bb_sk_short"}, ("BAOBAB_BOOTSTRAP_KEY",)),
        ({"BAOBAB_PLAN": "free"}, ("BAOBAB_PLAN", "playground")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_setting_is_one_line_that_names_it(settings: dict[str, str], words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["serve"], env=settings)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    for word in words:
        assert word in line


def test_a_secret_that_is_refused_is_not_repeated() -> None:
    wrong = "bb_sk_" + "S" * 39
    line = read_error_line(run_baobab("serve", settings={"BAOBAB_BOOTSTRAP_KEY": wrong}))
    assert "BAOBAB_BOOTSTRAP_KEY" in line
    assert wrong not in line


@pytest.mark.parametrize("command", [("serve",), ("keys", "list")], ids=" ".join)
def test_a_data_folder_that_cannot_be_made_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in read_error_line(
        run_baobab(*command, "--data", tmp_path / "file" / "data", settings={"BAOBAB_PORT": str(free_port())})
    )


@pytest.mark.parametrize("command", [("serve",), ("keys", "list")], ids=" ".join)
def test_a_file_in_place_of_the_data_folder_is_told_with_what_to_do(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    line = read_error_line(
        run_baobab(*command, "--data", tmp_path / "file", settings={"BAOBAB_PORT": str(free_port())})
    )
    assert str(tmp_path / "file") in line
    assert "--data" in line


@pytest.mark.parametrize(
    "command",
    [
        ("keys", "create", "mine"),
        ("plan", "org_1"),
        ("credits", "show", "org_1"),
        ("forget-store", "kv:local"),
        ("password", "--password", "correct Horse 7!"),
        ("replay", "run_1"),
        ("backup", "elsewhere"),
        ("transfer", "--to", "elsewhere"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_in_the_wrong_folder_says_what_it_looked_for_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    for word in (f"{tmp_path / 'data' / 'baobab.db'} does not exist", "--data", "BAOBAB_DATA", "baobab init"):
        assert word in line
    assert not list(tmp_path.iterdir())


def test_a_folder_in_place_of_a_file_of_the_data_folder_is_told_with_what_to_do(tmp_path: Path) -> None:
    lock = tmp_path / "baobab.lock"
    lock.mkdir()
    line = read_error_line(run_baobab("serve", "--port", free_port(), "--data", tmp_path))
    assert str(lock) in line
    assert "Move it away" in line


def test_an_unknown_field_of_a_region_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    regions = tmp_path / "regions.toml"
    regions.write_text('[far-north-1]\nfoo = "bar"\n')
    line = read_error_line(run_baobab("serve", "--data", tmp_path / "data", settings={"BAOBAB_REGIONS": str(regions)}))
    assert "far-north-1.foo" in line
    assert "database_url, notices_url, valkey_url, kv, objects_url" in line


def test_a_damaged_or_foreign_secret_key_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run_baobab("init", "--data", data).returncode == 0
    (data / "secret.key").write_text("not a key\n")
    assert "secret.key" in read_error_line(run_baobab("keys", "list", "--data", data))
    (data / "secret.key").unlink()
    # A new key would be made silently, and everything sealed before would be lost later, one by one.
    assert "secret.key" in read_error_line(run_baobab("serve", "--port", free_port(), "--data", data))


def test_a_database_of_a_later_version_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run_baobab("init", "--data", data).returncode == 0
    with closing(sqlite3.connect(data / "baobab.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    for command in (("serve", "--port", free_port()), ("migrate",), ("keys", "list")):
        assert "9999" in read_error_line(run_baobab(*command, "--data", data))


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "baobab.db").write_text("this is not a database, but it is long enough to be one" * 100)
    read_error_line(run_baobab("serve", "--port", free_port(), "--data", tmp_path / "data"))
