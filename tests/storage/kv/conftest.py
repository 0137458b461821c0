from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from baobab.storage.kv.engine import Engine
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.valkey.engine import ValkeyEngine
from tests.servers import PostgresServer, ValkeyServer, start_postgres, start_valkey
from tests.storage.kv.memory_engine import MemoryEngine


class FakeClock:
    """Stands still unless told."""

    def __init__(self) -> None:
        # A fraction that floats cannot hold exactly, as real clocks have.
        self.now = 1_700_000_000.1

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    with start_valkey() as server:
        yield server


@pytest.fixture
def valkey_url(valkey_server: ValkeyServer) -> str:
    """The address of a server that stores nothing on disk."""
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    return valkey_server.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with start_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_database(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database("kv")


@pytest.fixture
def postgres_url(postgres_database: str) -> str:
    """The address of a database without tables, or with empty ones."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('kv.usage')").fetchone() != (None,):
            connection.execute("TRUNCATE kv.entries, kv.usage")
    return postgres_database


@pytest.fixture
def make_engine(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Callable[[str], Engine]:
    """An engine by its name, not yet open, on an empty store."""
    makers: dict[str, Callable[[], Engine]] = {
        "memory": lambda: MemoryEngine(clock),
        "sqlite": lambda: SqliteEngine(tmp_path, clock),
        "postgres": lambda: PostgresEngine(request.getfixturevalue("postgres_url"), clock),
        "valkey": lambda: ValkeyEngine(request.getfixturevalue("valkey_url"), clock),
    }
    return lambda name: makers[name]()


@pytest.fixture(params=["memory", "sqlite", "postgres", "valkey"])
async def engine(request: pytest.FixtureRequest, make_engine: Callable[[str], Engine]) -> AsyncIterator[Engine]:
    created_engine = make_engine(request.param)
    await created_engine.open()
    yield created_engine
    await created_engine.close()


@pytest.fixture
async def sqlite(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteEngine]:
    """On `tmp_path`, and quick to give up on a lock."""
    sqlite_engine = SqliteEngine(tmp_path, clock, busy_timeout=0.05)
    await sqlite_engine.open()
    yield sqlite_engine
    await sqlite_engine.close()


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """One that a test may kill."""
    with start_valkey() as running:
        yield running
