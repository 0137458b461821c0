"""`baobab connect` prints what connects a client, with the key that it is given and no other."""

import json
from pathlib import Path

import pytest

from baobab.mcp_server.client_setup import render_client_lines
from tests.cli.server_process import run_baobab

KEY = "bb_sk_" + "B" * 40
URL = "http://127.0.0.1:9123/mcp"
PORT = {"BAOBAB_PORT": "9123"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without an installation: the command needs none."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("client", "name"), [("claude-code", "Claude Code"), ("Codex", "Codex"), ("vscode", "VS Code")]
)
def test_it_prints_the_command_of_a_client_and_nothing_else(client: str, name: str) -> None:
    process = run_baobab("connect", client, "--key", KEY, settings=PORT)
    assert process.stdout == f"{render_client_lines(URL, KEY)[name]}\n"
    assert process.stderr == ""


def test_json_for_a_file_is_indented_and_the_file_is_named_beside_it() -> None:
    process = run_baobab("connect", "cursor", "--key", KEY, settings=PORT)
    entry = json.loads(process.stdout)["mcpServers"]["baobab"]
    assert (entry["url"], entry["headers"]["Authorization"]) == (URL, f"Bearer {KEY}")
    assert "~/.cursor/mcp.json" in process.stderr


def test_without_a_name_it_lists_the_clients_and_each_of_them_is_one() -> None:
    names = [line.split()[0] for line in run_baobab("connect", settings=PORT).stdout.splitlines()]
    assert {"claude-code", "codex", "cursor", "vs-code"} <= {*names}
    for name in names:
        assert KEY in run_baobab("connect", name, "--key", KEY, settings=PORT).stdout
        assert "earer" not in run_baobab("connect", name, "--oauth", settings=PORT).stdout


def test_it_asks_for_the_key_and_creates_neither_a_key_nor_a_folder(tmp_path: Path) -> None:
    process = run_baobab("connect", "claude-code", settings=PORT)
    assert process.returncode == 1
    assert process.stdout == ""
    assert "API key" in process.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("claude-code", "--key", "bb_sk_short"),
        ("claude-code", "--key", f"{KEY}; rm -r ."),
        ("netscape", "--key", KEY),
        ("claude-code", "--key", KEY, "--address", "https://a.example.com/$(id)"),
    ],
)
def test_what_does_not_belong_into_a_command_is_refused(arguments: tuple[str, ...]) -> None:
    process = run_baobab("connect", *arguments, settings=PORT)
    assert process.returncode == 2
    assert process.stdout == ""


def test_an_address_of_the_settings_that_a_shell_would_run_is_refused_too() -> None:
    process = run_baobab(
        "connect", "claude-code", "--key", KEY, settings={"BAOBAB_BASE_URL": "https://a.example.com/$(id)"}
    )
    assert process.returncode != 0
    assert process.stdout == ""
    assert "BAOBAB_BASE_URL" in process.stderr


def test_the_address_of_another_server_takes_the_place_of_the_settings() -> None:
    for address in ("https://baobab.example.com", "https://baobab.example.com/mcp/"):
        process = run_baobab("connect", "codex", "--oauth", "--address", address)
        assert process.stdout == "codex mcp add baobab --url https://baobab.example.com/mcp\n"
