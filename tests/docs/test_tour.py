"""What the pages tell a reader to type works as it stands there."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.server_process import PATIENCE, ServerProcess, serving
from tests.docs.blocks import blocks
from tests.docs.generate import ROOT

README = (ROOT / "README.md").read_text()


def in_place_of(text: str, line: str, other: str) -> str:
    assert text.count(line) == 1, f"{line!r} is what the test replaces"
    return text.replace(line, other)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("tour") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def tour(server: ServerProcess) -> tuple[str, str]:
    """The tour's shell commands in one script, and what it printed."""
    start, *steps = blocks(README, "sh")
    assert start == "make serve\n"
    script = in_place_of("\n".join(steps), "BAOBAB=http://127.0.0.1:8000", f"BAOBAB={server.address}")
    script = in_place_of(script, "KEY=bb_sk_PUT_YOUR_KEY_HERE", f"KEY={server.key}")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return script, done.stdout


def test_the_tour_prints_what_the_readme_says(tour: tuple[str, str]) -> None:
    script, printed = tour
    promised = re.findall(r"^# (\{.*\})$", script, re.MULTILINE)
    assert len(promised) > 4
    for answer in promised:
        before, found, printed = printed.partition(answer)
        assert found, f"{answer} does not follow {before}"


def test_the_mcp_request_of_the_tour_reads_the_value(tour: tuple[str, str]) -> None:
    _, printed = tour
    answer, _ = json.JSONDecoder().raw_decode(printed[printed.index('{"jsonrpc"') :])
    assert answer["result"]["structuredContent"] == {"value": {"text": "hello"}}


def test_the_python_client_of_the_tour_reads_the_value(
    server: ServerProcess, tour: tuple[str, str], tmp_path: Path
) -> None:
    (program,) = blocks(README, "python")
    (tmp_path / "tour.py").write_text(program)
    environment = {**os.environ, "BAOBAB": server.address, "KEY": server.key}
    done = subprocess.run(
        [sys.executable, "tour.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+ tools\n\{'value': \{'text': 'hello'\}\}\n", done.stdout)
