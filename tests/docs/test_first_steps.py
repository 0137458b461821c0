"""What the pages for first steps tell a reader to type works as it stands there, and answers what they say."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.docs.shell import check_order, run_shell, set_variables
from tests.ports import free_port

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1"}
    with run_server(tmp_path_factory.mktemp("steps") / "data", settings=settings) as process:
        yield process


@pytest.fixture
def weather_port(tmp_path: Path) -> Iterator[str]:
    """The port at which the tool server of the page answers."""
    port = str(free_port())
    (program,) = find_blocks((DOCS / "your-mcp-server.md").read_text(), "python")
    (tmp_path / "weather.py").write_text(program.replace("9500", port))
    with subprocess.Popen([sys.executable, "weather.py"], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_it_answers(f"http://127.0.0.1:{port}/mcp")
            yield port
        finally:
            process.terminate()


def wait_until_it_answers(address: str) -> None:
    patient_until = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            httpx.get(address)
        except httpx.ConnectError:
            assert time.monotonic() < patient_until, f"nothing answers at {address}"
            time.sleep(0.1)
        else:
            return


def follow(page: str, server: ServerProcess, port: str = "9500") -> None:
    """Types the shell commands of a page, and fails unless the answers in its comments were printed in their order."""
    script = "\n".join(find_blocks((DOCS / page).read_text(), "sh")).replace("9500", port)
    check_order(run_shell(set_variables(server) + script), *re.findall(r"^# (.*)$", script, re.MULTILINE))


@pytest.mark.parametrize("page", ["first-agent.md", "memory.md", "answers.md"])
def test_the_examples_of_a_page_run_and_answer_what_it_says(server: ServerProcess, page: str) -> None:
    follow(page, server)


def test_an_agent_calls_the_tool_server_that_the_page_writes(server: ServerProcess, weather_port: str) -> None:
    follow("your-mcp-server.md", server, weather_port)
