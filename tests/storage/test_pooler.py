"""Behind a pooler, each transaction may run in another session of the server (docs/decisions/0026-behind-a-pooler.md).

`make test-pgbouncer` runs all tests of rows like that. These hold what it could not show.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from baobab.storage.clock import Ids, SystemClock
from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.sql.database import Database
from baobab.storage.sql.migrate import migrate
from baobab.storage.sql.notices import Notices
from baobab.storage.sql.postgres import PostgresDatabase
from baobab.storage.transfer.errors import TransferRefused
from baobab.storage.transfer.source import build_source
from tests.servers import POOL_SIZE, TIMEOUT_SECONDS, PostgresServer, start_postgres

_FREE = Quota()
_NUMBERS = itertools.count(1)
_STATE = """
SELECT name, setting FROM pg_settings WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding')
UNION ALL SELECT name, statement FROM pg_prepared_statements
UNION ALL SELECT 'listens', channel FROM pg_listening_channels() AS channel
UNION ALL SELECT 'holds', objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with start_postgres(with_pooler=True) as running:
        yield running


@pytest.fixture
def name(server: PostgresServer) -> str:
    """The name of an empty database."""
    database = f"pooled_{next(_NUMBERS)}"
    server.create_database(database)
    return database


@pytest.fixture
def url(server: PostgresServer, name: str) -> str:
    assert server.pooler is not None
    return server.pooler.url(name)


@contextlib.asynccontextmanager
async def open_database(url: str, **options: Any) -> AsyncIterator[Database]:
    database = PostgresDatabase(url, **options)
    await database.open()
    try:
        await migrate(database)
        yield database
    finally:
        await database.close()


async def read_sessions(url: str) -> list[Any]:
    """Returns the settings that were left behind in any of the pooler's sessions."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await psycopg.AsyncConnection.connect(url, prepare_threshold=None) for _ in range(POOL_SIZE)]
        for client in clients:
            stack.push_async_callback(client.close)
        # Each has a session of its own until its transaction ends.
        return [row for client in clients for row in await (await client.execute(_STATE)).fetchall()]


async def test_nothing_is_left_behind_in_a_session(url: str) -> None:
    engine = PostgresEngine(url)
    await engine.open()
    async with open_database(url) as database:
        notices = Notices(database, SystemClock(), Ids())
        await notices.start()

        async def work(number: int) -> None:
            for _ in range(8):
                async with database.writing(lock=f"app_{number}") as connection:
                    await connection.execute(text("SELECT :number"), {"number": number})
                async with database.reading() as connection:
                    await connection.execute(text("SELECT :number"), {"number": number})
                await engine.put("app", f"{number}", b"1", None, Tier.EPHEMERAL, _FREE)
                await engine.get("app", f"{number}")

        await asyncio.gather(*(work(number) for number in range(30)))
        await notices.stop()
    await engine.close()
    assert await read_sessions(url) == []


async def test_more_workers_than_sessions_lose_no_write(url: str) -> None:
    """Eight workers, of which each has more connections than its share of the pooler's."""
    async with contextlib.AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(open_database(url)) for _ in range(8)]
        engines = [PostgresEngine(url) for _ in range(8)]
        for engine in engines:
            await engine.open()
            stack.push_async_callback(engine.close)
        async with databases[0].writing(lock=None) as connection:
            await connection.execute(text("CREATE TABLE counter (app TEXT PRIMARY KEY, n INTEGER NOT NULL)"))
            await connection.execute(text("INSERT INTO counter SELECT 'app_' || n, 0 FROM generate_series(0, 3) AS n"))

        async def increment(database: Database, engine: PostgresEngine, app: str) -> None:
            for _ in range(10):
                async with database.writing(lock=app) as connection:
                    row = {"app": app}
                    row["n"] = await connection.scalar(text("SELECT n FROM counter WHERE app = :app"), row)
                    await connection.execute(text("UPDATE counter SET n = :n + 1 WHERE app = :app"), row)
                await engine.incr(app, "n", 1, None, _FREE)

        workers = zip(databases, engines, strict=True)
        await asyncio.gather(*(increment(*worker, f"app_{n}") for worker in workers for n in range(4)))
        async with databases[0].reading() as connection:
            counts = (await connection.execute(text("SELECT n FROM counter"))).scalars().all()
        assert [*counts, *[await engines[0].get(f"app_{n}", "n") for n in range(4)]] == [80] * 4 + [b"80"] * 4


@pytest.mark.parametrize("listens", [True, False])
async def test_notices_arrive_with_an_address_of_their_own_and_without_one(
    server: PostgresServer, url: str, name: str, listens: bool
) -> None:
    notices_url = server.url(name) if listens else ""
    async with open_database(url, notices_url=notices_url) as one, open_database(url, notices_url=notices_url) as other:
        here, there = (Notices(database, SystemClock(), Ids()) for database in (one, other))
        has_heard = asyncio.Event()
        there.subscribe("key", lambda _: has_heard.set())
        await there.start()
        async with one.writing_unit(lock=None) as unit:
            await here.publish(unit, "key", "abc")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await has_heard.wait()
        with psycopg.connect(server.url(name)) as connection:
            # A session that found out about the pooler keeps the name.
            count = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'"
            assert connection.execute(count, (name,)).fetchone() == (int(listens),)
        await there.stop()


async def test_a_statement_ends_after_the_time_that_is_set_for_it(server: PostgresServer, url: str, name: str) -> None:
    """Though the setting is not one of the session."""
    engine = PostgresEngine(url, timeout=0.2)
    await engine.open()
    with psycopg.connect(server.url(name)) as holder:
        holder.execute("LOCK TABLE kv.entries")
        started_at = time.monotonic()
        for call in (engine.get("app", "key"), engine.put("app", "key", b"1", None, Tier.DURABLE, _FREE)):
            with pytest.raises(Exception, match="statement timeout"):
                await call
        assert time.monotonic() - started_at < 30
    await engine.close()


async def test_a_transfer_from_behind_a_pooler_is_refused(url: str) -> None:
    async with open_database(url):
        pass
    source = build_source(url)
    with pytest.raises(TransferRefused, match="behind a pooler"):
        await source.open()
    await source.close()
