"""A real server in a process of its own, as an operator starts one."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx
from click.testing import CliRunner

from baobab.cli import main
from tests.backends import copy_migrated_file
from tests.cli.forked_process import ForkedProcess
from tests.ports import free_port

TIMEOUT_SECONDS = 180
"""Seconds, for a machine that has much else to do."""

_READY = re.compile(r"is ready\.\n(?:.*\n)*?  Models .*\n")
_INHERITED = {name: value for name, value in os.environ.items() if not name.startswith("BAOBAB_")}


def run_baobab(
    *arguments: object, settings: Mapping[str, str] | None = None, piped: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command of the command line to its end. piped: its standard input.

    It runs in this process, for starting another takes a second, and in a thread, for it has an event loop of its own.
    """
    texts = [str(argument) for argument in arguments]
    unset_variables = dict.fromkeys(os.environ.keys() - _INHERITED.keys())
    mask = os.umask(0o022)
    try:
        with ThreadPoolExecutor(1) as threads:
            environment = {**unset_variables, **(settings or {})}
            result = threads.submit(CliRunner().invoke, main, texts, env=environment, input=piped).result()
    finally:
        os.umask(mask)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(texts, result.exit_code, result.stdout, result.stderr)


@dataclass
class ServerProcess:
    process: subprocess.Popen[bytes] | ForkedProcess
    address: str
    log: Path

    @property
    def log_text(self) -> str:
        """The text that it has written to standard error so far."""
        return self.log.read_text()

    @property
    def key(self) -> str:
        match = re.search(r"bb_sk_[A-Za-z0-9]{40}", self.log_text)
        assert match, self.log_text
        return match[0]

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)


@contextmanager
def run_server(
    data: Path,
    *options: object,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
    program: Sequence[object] = (),
) -> Iterator[ServerProcess]:
    """A server that has said that it is ready; killed at the end if it still runs.

    program: what Python runs; it takes the same command line, and tells the same, as ours. Without one, the server is
    forked from a process that has already imported it, and finds a migrated database in a new data folder: a start
    takes half a second of a processor then, instead of six. ("-m", "baobab") is what an operator runs.
    """
    if not program and "BAOBAB_DATABASE_URL" not in (settings or {}):
        copy_migrated_file(data / "baobab.db")
    port = port or free_port()
    log = data.with_name(f"server-{port}-{time.monotonic_ns()}.log")
    with log.open("wb") as stderr:
        command = ("serve", "--port", port, "--data", data, *options)
        process = start_baobab(command, stderr, settings=settings, program=program)
    server = ServerProcess(process, f"http://127.0.0.1:{port}", log)
    try:
        _wait_until_ready(server)
        yield server
    finally:
        if process.poll() is None:
            server.kill()


def _wait_until_ready(server: ServerProcess) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not _READY.search(server.log_text):
        assert server.process.poll() is None, f"the server ended: {server.log_text}"
        assert time.monotonic() < deadline, f"the server is not ready: {server.log_text}"
        time.sleep(0.02)
    # With several workers the words come from the process that starts them; the first of these answers a little later.
    while True:
        try:
            httpx.get(f"{server.address}/health").raise_for_status()
        except httpx.TransportError:
            assert time.monotonic() < deadline, f"the server does not answer: {server.log_text}"
            time.sleep(0.02)
        else:
            return


def start_baobab(
    arguments: Sequence[object],
    stderr: IO[bytes],
    *,
    settings: Mapping[str, str] | None = None,
    program: Sequence[object] = (),
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Starts a command of the command line in a process of its own, which a test may stop and kill."""
    environment = {**_INHERITED, **(settings or {})}
    texts = [str(argument) for argument in arguments]
    if not program:
        return ForkedProcess(texts, environment, stderr.fileno())
    command = [sys.executable, *map(str, program), *texts]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)
