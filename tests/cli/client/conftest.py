"""A server that runs, an app in it, and a person at a terminal whose folder is their own."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_baobab, run_server

HELLO = 'export default (req, ctx) => Response.json({hello: "world", who: ctx.env.WHO ?? null})\n'
OPEN_TO_ALL = {"triggers": [{"type": "http", "config": {"auth": "none"}}]}


@dataclass
class Terminal:
    """A person who types commands. environment: their variables, with a configuration folder that is empty at first."""

    server: ServerProcess
    app: str
    folder: Path
    environment: dict[str, str]

    def run(self, *arguments: object, code: int = 0, piped: str | None = None, **variables: str) -> str:
        """Runs a command, and returns what it printed: on standard output if it did what it should, else on both."""
        process = run_baobab(*arguments, settings={**self.environment, **variables}, piped=piped)
        assert process.returncode == code, f"{process.stdout}\n{process.stderr}"
        return process.stdout if code == 0 else process.stdout + process.stderr

    def run_json(self, *arguments: object, code: int = 0, **options: Any) -> Any:
        process = run_baobab(*arguments, "--json", settings={**self.environment, **options})
        assert process.returncode == code, f"{process.stdout}\n{process.stderr}"
        return json.loads(process.stdout or process.stderr)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Starts a command in a process of its own, whose output can be read while it runs."""
        # A process in the background of a shell ignores Ctrl-C, and its children with it.
        return subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, "-m", "baobab", *map(str, arguments)],
            env={**self.without_settings(), **self.environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @staticmethod
    def without_settings() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("BAOBAB_")}

    def write(self, path: str, content: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.server.key}", **options.pop("headers", {})}
        address = f"{self.server.address}{path.replace('APP', self.app)}"
        return httpx.request(method, address, headers=headers, timeout=TIMEOUT_SECONDS, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("client") / "data") as process:
        yield process


@pytest.fixture
def terminal(server: ServerProcess, tmp_path: Path) -> Terminal:
    """With BAOBAB_URL, BAOBAB_KEY and BAOBAB_APP of a new app."""
    owner = {"authorization": f"Bearer {server.key}"}
    name = f"cli-{secrets.token_hex(6)}"
    app = httpx.post(f"{server.address}/init", json={"name": name}, headers=owner).json()["app_id"]
    environment = {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "BAOBAB_URL": server.address,
        "BAOBAB_KEY": server.key,
        "BAOBAB_APP": app,
    }
    return Terminal(server, app, tmp_path, environment)
