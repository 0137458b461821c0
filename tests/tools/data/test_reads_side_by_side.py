"""On Postgres, the reads of an app run side by side, and slow ones delay neither the app's quick ones nor other apps.

A read is slow here because its table is locked, so that it waits for as long as a test wants.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.data import postgres as schemas
from baobab.storage.sql import postgres_session
from baobab.tools.data.schema.catalogue import Catalogues
from tests.conftest import KEY
from tests.http.installation import Answer, Headers, Installation
from tests.servers import TIMEOUT_SECONDS, PostgresServer, start_postgres
from tests.tools.data.conftest import ADA, BEN, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

_TABLE: dict[str, Any] = {"columns": {"id": {"type": "integer", "primaryKey": True}, "text": "text"}}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with start_postgres() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    settings = {"BAOBAB_DATABASE_URL": postgres.url(), "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise"}
    server = Server(load_settings(settings, data=tmp_path_factory.mktemp("data")))
    with pytest.MonkeyPatch.context() as patch:
        # A statement waits for a lock as long as a test wants.
        for name in ("lock_timeout", "statement_timeout"):
            patch.setitem(postgres_session.SETTINGS, name, "1h")
        patch.setattr(postgres_session, "_SILENCE_SECONDS", 3600)
        async with server.open() as application:
            yield Installation(server, application)


@pytest_asyncio.fixture(loop_scope="module")
async def tables(world: Installation) -> Tables:
    """Everybody may read the tables `slow` and `small`, and the first can be locked."""
    tables = Tables(world, await world.create_app())
    await tables.apply({"slow": _TABLE, "small": _TABLE})
    for name in ("slow", "small"):
        await tables.insert(name, {"id": 1, "text": "a"})
        await tables.policy(name, "open", using_expression="true", command="SELECT")
    return tables


class LockedTable:
    """The table `slow`, which nobody can read now."""

    def __init__(self, observer: "psycopg.Connection[Any]") -> None:
        self._observer = observer

    async def wait_for_readers(self, count: int) -> None:
        """Waits until so many statements wait for the table."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%\"slow\"%'"
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self._observer.execute(query).fetchone() != (count,):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def open_impatient(postgres: PostgresServer, tables: Tables) -> AsyncIterator[Tables]:
    """The tables of the same app, on another server, whose statements wait for a lock for a moment only."""
    settings = {"BAOBAB_DATABASE_URL": postgres.url(), "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(postgres_session.SETTINGS, "lock_timeout", "100ms")
        server = Server(load_settings(settings, data=tables.world.application.settings.data))
        async with server.open() as application:
            yield Tables(Installation(server, application), tables.app)


@asynccontextmanager
async def lock_table(postgres: PostgresServer, tables: Tables) -> AsyncIterator[LockedTable]:
    with psycopg.connect(postgres.url()) as holder, psycopg.connect(postgres.url(), autocommit=True) as observer:
        holder.execute("SET idle_in_transaction_session_timeout = 0")
        holder.execute(f'LOCK TABLE "{tables.app.id}"."slow" IN ACCESS EXCLUSIVE MODE'.encode())
        yield LockedTable(observer)
        holder.rollback()


def start_reads(tables: Tables, count: int, by: Headers | None = None) -> list[asyncio.Task[Answer]]:
    return [asyncio.create_task(tables.ask("GET", "/slow?text=wfts.nothing", by=by)) for _ in range(count)]


async def collect_statuses(reads: list[asyncio.Task[Answer]]) -> set[int]:
    return {answer.status for answer in await asyncio.gather(*reads)}


async def test_slow_reads_of_visitors_delay_neither_the_apps_other_readers_nor_another_app(
    postgres: PostgresServer, tables: Tables, world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_QUICK_SECONDS", 0.2)
    monkeypatch.setattr(schemas, "_SECONDS", 3600)
    neighbour = Tables(world, await world.create_app())
    await neighbour.apply({"small": _TABLE})
    user = await tables.user(ADA)
    async with lock_table(postgres, tables) as table:
        reads = start_reads(tables, 12, by={})
        # Some are still having their turn among the quick reads.
        await table.wait_for_readers(3)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for _ in range(5):
                for by in ({}, user, None):
                    assert [row["id"] for row in await tables.list("small", by=by)] == [1]
                assert await neighbour.list("small") == []
                assert (await tables.ask("POST", "/small", {"id": 7})).status == 201
                assert (await tables.ask("DELETE", "/small/7")).status == 200
        # All have had it, and one of them is running among the slow ones.
        await table.wait_for_readers(1)
        assert not any(read.done() for read in reads)
        for read in reads:
            read.cancel()
    await asyncio.gather(*reads, return_exceptions=True)
    # Their places and connections are free again.
    assert await collect_statuses(start_reads(tables, 5, by={})) == {200}


async def test_of_the_slow_reads_of_an_app_one_caller_runs_one_and_others_go_beside_it(
    postgres: PostgresServer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_QUICK_SECONDS", 0.01)
    monkeypatch.setattr(schemas, "_SECONDS", 3600)
    async with lock_table(postgres, tables) as table:
        reads = start_reads(tables, 4, by={})
        await table.wait_for_readers(1)
        reads += start_reads(tables, 4, by=await tables.user(BEN))
        await table.wait_for_readers(2)
    assert await collect_statuses(reads) == {200}


async def test_a_read_is_stopped_after_the_seconds_that_the_guide_names_and_says_so(
    postgres: PostgresServer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert schemas._SECONDS == 15
    monkeypatch.setattr(schemas, "_QUICK_SECONDS", 0.3)
    monkeypatch.setattr(schemas, "_SECONDS", 0.6)
    async with lock_table(postgres, tables):
        answers = await asyncio.gather(*start_reads(tables, 5))
    assert {(answer.status, answer.json["error"]["code"]) for answer in answers} == {(504, "QUERY_TIMEOUT")}
    # Its connection goes on.
    assert await collect_statuses(start_reads(tables, 5)) == {200}


async def test_who_waits_too_long_for_a_change_of_the_schema_is_told_that_it_is_changing(
    postgres: PostgresServer, tables: Tables
) -> None:
    async with open_impatient(postgres, tables) as impatient:
        async with lock_table(postgres, tables):
            read_answer = await impatient.ask("GET", "/slow")
            write_answer = await impatient.ask("POST", "/slow", {"id": 8})
            schema = {"tables": {"slow": {"columns": {**_TABLE["columns"], "more": "text"}}, "small": _TABLE}}
            schema_answer = await impatient.ask("POST", "/schema/apply", {"schema": schema})
        for answer, code in (
            (read_answer, "SCHEMA_CHANGING"),
            (write_answer, "DATA_BUSY"),
            (schema_answer, "DATA_BUSY"),
        ):
            assert (answer.status, answer.json["error"]["code"]) == (503, code), answer.content
            assert int(answer.headers["retry-after"]) >= 1
        assert (await impatient.ask("GET", "/slow")).status == 200


async def test_a_read_whose_statement_was_prepared_before_a_change_of_its_table_is_answered(
    postgres: PostgresServer, tables: Tables
) -> None:
    for _ in range(20):
        assert [row["id"] for row in await tables.list("small")] == [1]
    postgres.execute(f'ALTER TABLE "{tables.app.id}"."small" ALTER COLUMN id TYPE bigint')
    for _ in range(20):
        assert [row["id"] for row in await tables.list("small")] == [1]


async def test_a_read_by_a_catalogue_that_another_server_has_replaced_reads_the_new_one(
    postgres: PostgresServer, tables: Tables, world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await tables.list("small") == [{"id": 1, "text": "a"}]
    with monkeypatch.context() as patch:
        # As if the notice had not arrived yet.
        patch.setattr(world.application.services.of(Catalogues)._cache, "forget", lambda _: None)
        small_schema = {"columns": {"id": _TABLE["columns"]["id"]}, "_dropColumns": ["text"]}
        await tables.apply({"slow": _TABLE, "small": small_schema})
    assert await tables.list("small") == [{"id": 1}]
