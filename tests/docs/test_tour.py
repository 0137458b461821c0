"""What the pages tell a reader to type works as it stands there."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from baobab import __version__
from baobab.mcp_server.client_setup import render_client_lines
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_baobab, run_server
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


def test_the_first_start_prints_what_the_readme_shows(server: ServerProcess) -> None:
    [shown_block] = [block for block in find_blocks(README, "text") if "is ready." in block]
    assert f"Baobab {__version__} is ready." in shown_block
    for label, text in re.findall(r"^  (\S[\w ]{6} ) ?(.+)$", shown_block, re.MULTILINE):
        [line] = [line for line in server.log_text.splitlines() if line.startswith(f"  {label}")]
        words = re.split(r"http://127.0.0.1:8000|\.\.\.|within \d+ minutes", text)
        assert all(word in line for word in words), (line, words)


COMMAND = re.compile(r"`((?:BAOBAB_PORT=\d+ )?\.venv/bin/baobab [^`\n]+)`")


@pytest.mark.parametrize("command", COMMAND.findall(README))
def test_the_commands_that_the_readme_names_do_what_it_says(server: ServerProcess, command: str) -> None:
    words = shlex.split(command)
    variables = dict(word.split("=") for word in words if word.startswith("BAOBAB_"))
    arguments = words[len(variables) + 1 :]
    settings = {**variables, "BAOBAB_DATA": str(server.log.with_name("data"))}
    process = run_baobab(*arguments, settings=settings)
    assert process.returncode == 0, process.stderr
    assert f":{variables.get('BAOBAB_PORT', '')}" in process.stdout or not variables
    assert process.stdout.strip()


def test_the_line_of_a_client_is_printed_with_the_key_that_is_typed(server: ServerProcess) -> None:
    [block] = [block for block in find_blocks(README, "text") if "baobab connect" in block and "is ready." not in block]
    [command] = block.splitlines()
    # Without a terminal, the key is read from standard input.
    process = subprocess.run(
        [sys.executable, "-m", "baobab", *shlex.split(command)[1:]],
        input=f"{server.key}\n",
        env={**os.environ, "BAOBAB_PORT": server.address.rpartition(":")[2]},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        start_new_session=True,
    )
    assert process.stdout == f"{render_client_lines(f'{server.address}/mcp', server.key)['Claude Code']}\n"
