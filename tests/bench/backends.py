"""The backends that are compared: the same code on files, on Postgres, and on Postgres and Valkey.

All of them keep what they have acknowledged through a power cut, as the embedded one does: the servers of the tests,
which are in a hurry and keep nothing, are started again with what an operator would give them.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg

from tests import servers
from tests.bench.processes import cpu_seconds

SQLITE, POSTGRES, VALKEY = "files", "Postgres", "Valkey"
MEANING = {
    SQLITE: "everything in files",
    POSTGRES: "rows and key-value store in Postgres",
    VALKEY: "rows in Postgres, key-value store and limits in Valkey",
}
NAMES = tuple(MEANING)
"""The first is what the others are compared with."""
_CONNECTIONS = 300


@dataclass
class Servers:
    """The database servers of a run; each installation on them has its own database and number."""

    postgres: servers.PostgresServer
    valkey: servers.ValkeyServer
    _installations: int = field(default=0, repr=False)

    def settings(self, backend: str) -> dict[str, str]:
        """The environment of a new installation, empty on every server."""
        if backend == SQLITE:
            return {}
        self._installations += 1
        settings = {"BAOBAB_DATABASE_URL": self.postgres.create_database(f"bench_{self._installations}")}
        if backend == VALKEY:
            settings["BAOBAB_VALKEY_URL"] = f"redis://127.0.0.1:{self.valkey.port}/{self._installations % 16}"
            _send_commands(self.valkey.port, f"SELECT {self._installations % 16}", "FLUSHDB")
            settings["BAOBAB_KV"] = "valkey"
        return settings

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(server.process.pid) for server in (self.postgres, self.valkey) if server.process)


class _DurablePostgres(servers.PostgresServer):
    """Begun as those of the tests are, and then served as Postgres comes: every commit is on disk."""

    def start(self) -> None:
        options = ("-p", str(self.port), "-k", "", "-h", "127.0.0.1", "-c", f"max_connections={_CONNECTIONS}")
        owner = self.folder.stat()
        as_owner = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        self.process = subprocess.Popen(
            [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), *options],
            **as_owner,  # type: ignore[call-overload]
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(300):
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            time.sleep(0.1)
        raise RuntimeError("Postgres does not answer")


@contextlib.contextmanager
def start_servers() -> Iterator[Servers]:
    with servers.start_postgres() as fast_postgres, servers.start_valkey() as valkey:
        fast_postgres.stop()
        _send_commands(valkey.port, "CONFIG SET appendfsync always", "CONFIG SET maxmemory-policy noeviction")
        durable_postgres = _DurablePostgres(fast_postgres.binaries, fast_postgres.folder, fast_postgres.port)
        durable_postgres.start()
        try:
            yield Servers(durable_postgres, valkey)
        finally:
            durable_postgres.stop()


def _send_commands(port: int, *commands: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for command in commands:
            connection.sendall(f"{command}\r\n".encode())
            answer = connection.recv(1000)
            if not answer.startswith(b"+OK"):
                raise RuntimeError(f"{command}: {answer!r}")
