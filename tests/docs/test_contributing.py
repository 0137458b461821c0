"""The domain and the page that CONTRIBUTING.md shows work as they stand there."""

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from baobab.storage.sql.migrate import list_revisions
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server
from tests.docs.blocks import find_blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
LAYERS = ("docs", "http", "mcp_server", "runtime", "src", "storage", "tools")
DOMAINS = Path("tools", "__init__.py")


def number_migration(text: str) -> str:
    """Puts the number of the next migration, and that of the last one, in place of the page's letters."""
    last = list_revisions()[-1]
    return text.replace("00NN", f"{int(last) + 1:04}").replace("00MM", last)


def read_new_files() -> dict[str, str]:
    """The contents of the page's new files, by their paths."""
    matches = re.findall(r"^`([^`\n]+)`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return {number_migration(path): number_migration(text) for path, text in matches}


def write_domain(folder: Path) -> None:
    for path, text in read_new_files().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    (change,) = find_blocks(PAGE, "diff")
    before = "".join(line[1:] for line in change.splitlines(keepends=True) if line.startswith(" "))
    after = "".join(line[1:] for line in change.splitlines(keepends=True))
    listed_text = (folder / DOMAINS).read_text()
    assert listed_text.count(before) == 1, "the page's change does not fit tools/__init__.py"
    (folder / DOMAINS).write_text(listed_text.replace(before, after))


@pytest.fixture(scope="module")
def copied_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with the page's domain."""
    folder = tmp_path_factory.mktemp("contributing")
    for layer in LAYERS:
        # The links of src/baobab stay links, and lead to the copies.
        shutil.copytree(ROOT / layer, folder / layer, symlinks=True)
    write_domain(folder)
    return folder


@pytest.fixture(scope="module")
def server(copied_package: Path) -> Iterator[ServerProcess]:
    settings = {"PYTHONPATH": str(copied_package / "src")}
    with run_server(copied_package / "data", settings=settings, program=("-m", "baobab")) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    by = {"Authorization": f"Bearer {server.key}"}
    with httpx.Client(base_url=server.address, headers=by, timeout=TIMEOUT_SECONDS) as client:
        yield client


async def call_over_mcp(server: ServerProcess, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Calls tools in their order, as an MCP client does; the structured results."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as http,
        Client(streamable_http_client(f"{server.address}/mcp", http_client=http)) as client,
    ):
        results = [await client.call_tool(tool, arguments) for tool, arguments in calls]
    assert not [result for result in results if result.is_error]
    return [result.structured_content for result in results]


def count_notes(copied_package: Path) -> int:
    connection = sqlite3.connect(copied_package / "data" / "baobab.db")
    try:
        (count,) = connection.execute("SELECT count(*) FROM notes").fetchone()
    finally:
        connection.close()
    return int(count)


def test_a_domain_takes_at_most_four_new_files_and_two_changed_lines() -> None:
    assert len([path for path in read_new_files() if not path.startswith("http/console/")]) <= 4
    assert len(re.findall(r"^\+", "".join(find_blocks(PAGE, "diff")), re.MULTILINE)) <= 2


async def test_the_tools_of_the_page_answer_over_rest_and_mcp_and_the_rows_go_with_the_app(
    server: ServerProcess, client: httpx.Client, copied_package: Path
) -> None:
    app_id = client.post("/init", json={"name": "contributing"}).raise_for_status().json()["app_id"]
    response = client.post(f"/v1/{app_id}/notes", json={"text": "over REST"})
    assert response.status_code == 201
    note, listing = await call_over_mcp(
        server,
        ("notes_create", {"app_id": app_id, "text": "over MCP"}),
        ("notes_list", {"app_id": app_id}),
    )
    assert [note["text"], response.json()["text"]] == ["over MCP", "over REST"]
    assert listing == {"total": 2, "notes": [note, response.json()]}
    assert client.get(f"/v1/{app_id}/notes").json() == {"notes": listing["notes"]}
    assert count_notes(copied_package) == 2
    await call_over_mcp(server, ("apps_delete", {"app_id": app_id}))
    assert count_notes(copied_package) == 0


def test_a_page_of_the_console_takes_one_new_file(server: ServerProcess) -> None:
    with httpx.Client(
        base_url=server.address,
        follow_redirects=True,
        headers={"origin": server.address},
        timeout=TIMEOUT_SECONDS,
    ) as browser:
        inbox = browser.post("/console/sign-in", data={"key": server.key})
        assert re.search(r'<a href="/console/cost"[^>]*>.*<span>Cost</span></a>', inbox.text)
        assert "No key has called a model" in browser.get("/console/cost").text
        body = {"model": "baobab/echo", "messages": [{"role": "user", "content": "Hello!"}]}
        owner = {"Authorization": f"Bearer {server.key}"}
        browser.post("/v1/chat/completions", json=body, headers=owner).raise_for_status()
        assert "baobab/echo: 1 requests" in browser.get("/console/cost").text


def test_the_code_of_the_page_passes_the_linter(copied_package: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", copied_package)
    for command in (("check",), ("format", "--check")):
        process = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", *read_new_files()],
            cwd=copied_package,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr
