"""A reader who types the shell commands of a page."""

import os
import subprocess
from pathlib import Path

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess

_INIT = """curl -s $BAOBAB/init -H "Authorization: Bearer $KEY" -d '{"name": "steps"}'"""


def run_shell(commands: str, folder: Path | None = None, **environment: str) -> str:
    """Runs commands as one script that ends at the first failure; returns what they print."""
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def set_variables(server: ServerProcess) -> str:
    """The commands that set the pages' `BAOBAB`, `KEY` and `APP`, which is a new app."""
    app = f"APP=$({_INIT} | grep -o 'app_[a-z0-9]\\{{12\\}}' | head -n 1)"
    return f"BAOBAB={server.address}\nKEY={server.key}\n{app}\n"


def check_order(output: str, *answers: str) -> None:
    """Fails unless the answers were printed, each after the one before."""
    assert answers
    for answer in answers:
        before, separator, output = output.partition(answer)
        assert separator, f"{answer} does not follow {before}"
