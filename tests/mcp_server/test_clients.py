"""The lines for well-known clients: what the page shows, and that each carries what it must."""

import json
import shlex
from collections.abc import Iterator

import httpx
import pytest

from baobab.mcp_server.client_setup import render_client_lines
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server
from tests.docs.generate import ROOT

URL, KEY = "http://127.0.0.1:8000/mcp", "bb_sk_PUT_YOUR_KEY_HERE"


@pytest.mark.parametrize("line", render_client_lines(URL, KEY).values())
def test_the_page_about_mcp_shows_what_is_printed(line: str) -> None:
    assert "\n" not in line
    assert f"\n{line}\n" in (ROOT / "docs/mcp.md").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("clients") / "data") as process:
        yield process


def test_json_is_json_and_leads_to_the_tools(server: ServerProcess) -> None:
    lines = render_client_lines(f"{server.address}/mcp", server.key)
    entries = [json.loads(line)["mcpServers"]["baobab"] for line in lines.values() if line.startswith("{")]
    entries.append(json.loads(shlex.split(lines["VS Code"])[2]))
    for entry in entries:
        if "command" in entry:
            assert not [argument for argument in entry["args"] if " " in argument]
            continue
        headers = {**entry["headers"], "accept": "application/json, text/event-stream"}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        url = entry.get("url") or entry["serverUrl"]
        assert "kv_put" in httpx.post(url, json=request, headers=headers, timeout=TIMEOUT_SECONDS).text


def test_the_bridge_is_told_where_an_address_is_not_encrypted() -> None:
    name = "Claude Desktop (claude_desktop_config.json)"
    assert "--allow-http" not in render_client_lines(URL, KEY)[name]
    assert "--allow-http" in render_client_lines("http://10.0.0.5:8000/mcp", KEY)[name]
