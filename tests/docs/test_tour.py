"""What the pages tell a reader to type works as it stands there."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server
from tests.docs.blocks import find_blocks
from tests.docs.tour import README, check_promises, run_tour


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("tour") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def tour(server: ServerProcess) -> tuple[str, str]:
    return run_tour(server.address, server.key)


def test_the_tour_prints_what_the_readme_says(tour: tuple[str, str]) -> None:
    check_promises(*tour)


@pytest.mark.usefixtures("tour")
def test_the_tour_may_be_taken_again_at_once(server: ServerProcess) -> None:
    check_promises(*run_tour(server.address, server.key))


def test_the_mcp_request_of_the_tour_reads_the_value(tour: tuple[str, str]) -> None:
    _, output = tour
    answer, _ = json.JSONDecoder().raw_decode(output[output.index('{"jsonrpc"') :])
    assert answer["result"]["structuredContent"] == {"value": {"text": "hello"}}


def test_the_python_client_of_the_tour_reads_the_value(
    server: ServerProcess, tour: tuple[str, str], tmp_path: Path
) -> None:
    (program,) = find_blocks(README, "python")
    (tmp_path / "tour.py").write_text(program)
    environment = {**os.environ, "BAOBAB": server.address, "KEY": server.key}
    process = subprocess.run(
        [sys.executable, "tour.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert re.fullmatch(r"\d+ tools\n\{'value': \{'text': 'hello'\}\}\n", process.stdout)
