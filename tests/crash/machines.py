"""Starts the server processes of crash tests: one installation, on either backend or on servers of a test's own.

On files they share a data folder; on Postgres each has a folder of its own, as on machines of their own.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.backends import prepare_data
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server

KEY = "bb_sk_" + "K" * 40
OWNER = {"Authorization": f"Bearer {KEY}"}
_WRONG_CLOCK = Path(__file__).with_name("wrong_clock.py")
# Every machine must hold the same one.
_SECRET = "Y3Jhc2gtY3Jhc2gtY3Jhc2gtY3Jhc2gtY3Jhc2gtYzE="


@dataclass
class Installation:
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    bootstrap: bool = True
    """Whether `KEY` is the first account's; else the first start makes one."""

    @classmethod
    def on_backend(
        cls, folder: Path, *, bootstrap: bool = True, settings: Mapping[str, str] | None = None
    ) -> "Installation":
        """On what this run of the suite tests: files, or Postgres; settings: further ones."""
        return cls(folder, {**prepare_data(folder / "data"), **(settings or {})}, bootstrap)

    @property
    def is_on_postgres(self) -> bool:
        return "BAOBAB_DATABASE_URL" in self.settings

    @property
    def database_url(self) -> str:
        return self.settings.get("BAOBAB_DATABASE_URL", f"sqlite:///{self.data(0) / 'baobab.db'}")

    @property
    def environment(self) -> dict[str, str]:
        secret_settings = {"BAOBAB_SECRET_KEY": _SECRET} if self.is_on_postgres else {}
        key_settings = {"BAOBAB_BOOTSTRAP_KEY": KEY} if self.bootstrap else {}
        return {"BAOBAB_PLAN": "enterprise", **secret_settings, **key_settings, **self.settings}

    def data(self, number: int) -> Path:
        return self.folder / (f"machine-{number}" if self.is_on_postgres else "data")

    def start_machine(
        self, number: int = 0, *, workers: int = 1, clock_offset: float = 0, port: int | None = None
    ) -> contextlib.AbstractContextManager[ServerProcess]:
        """A server process, or what starts several; `ahead`: seconds by which its clock is wrong."""
        program = (_WRONG_CLOCK, clock_offset) if clock_offset else ()
        settings = self.environment
        return run_server(self.data(number), "--workers", workers, settings=settings, port=port, program=program)


@contextlib.asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client with the first account's key, who waits for answers as long as a test may take."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=OWNER, timeout=timeout, connector=connector) as session:
        # It would send a PUT once more by itself when a connection breaks: then what is done twice was asked for twice.
        session._retry_connection = False
        yield session


async def create_app(session: aiohttp.ClientSession, server: ServerProcess, name: str = "load") -> str:
    async with session.post(f"{server.address}/init", json={"name": name}) as response:
        assert response.status == 201, await response.text()
        app_id: str = (await response.json())["app_id"]
        return app_id


def list_workers(server: ServerProcess) -> list[int]:
    """The processes that answer for a server which has several."""
    return [child for child in list_children(server.process.pid) if b"spawn_main" in _command(child)]


def list_children(parent: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may be gone by the time that it is looked at.
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                children.append(int(stat.parent.name))
    return children


def is_running(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def freeze_processes(*processes: int) -> Iterator[None]:
    """They neither go on nor end: what a paused virtual machine does, or one that swaps."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


async def fetch_readiness(session: aiohttp.ClientSession, server: ServerProcess) -> tuple[int, dict[str, Any]]:
    async with session.get(f"{server.address}/health/ready") as answer:
        return answer.status, await answer.json()


async def wait_for_readiness(
    session: aiohttp.ClientSession, server: ServerProcess, status: int = 200
) -> dict[str, Any]:
    """Wait until /health/ready answers so; what it then says of the stores."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            found_status, answer_json = await fetch_readiness(session, server)
            if found_status == status:
                checks: dict[str, Any] = answer_json["checks"]
                return checks
            await asyncio.sleep(0.05)


def _command(process: int) -> bytes:
    try:
        return (Path("/proc") / str(process) / "cmdline").read_bytes()
    except OSError:
        return b""
