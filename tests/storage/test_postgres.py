"""The rows in a real Postgres: what goes wrong with a server, and what must hold all the same."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import Integer, bindparam, select, text
from sqlalchemy.exc import DBAPIError

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.clock import Ids, SystemClock
from baobab.storage.sql import postgres, postgres_session
from baobab.storage.sql.database import (
    INSTALLATION,
    Database,
    DatabaseUnavailable,
    LockTimeout,
    StatementRefused,
    StatementTimeout,
)
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import list_revisions, migrate
from baobab.storage.sql.notices import Notices
from baobab.storage.sql.postgres import POOL
from tests.conftest import ADDRESS, KEY
from tests.servers import TIMEOUT_SECONDS, PostgresServer, start_postgres

_FREEZE = """
import asyncio, os, signal, sys
from sqlalchemy import Integer, bindparam, select, text
from sqlalchemy.exc import DBAPIError
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.databases import database_at

async def main():
    database = database_at(sys.argv[1])
    await database.open()
    try:
        async with database.writing() as connection:
            await connection.execute(text("UPDATE counter SET n = 1000"))
            print("holding", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
    except DatabaseUnavailable:
        print("refused", flush=True)
    else:
        print("written", flush=True)

asyncio.run(main())
"""


_IMPATIENT = """from baobab.storage.sql import postgres_session
    postgres_session.SETTINGS["idle_in_transaction_session_timeout"] = "1s"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with start_postgres() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    return server.create_database(f"t{abs(hash(request.node.name)):x}"[:40])


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = database_at(url)
    await database.open()
    async with database.writing() as connection:
        await connection.execute(text("CREATE TABLE counter (n INTEGER NOT NULL)"))
        await connection.execute(text("INSERT INTO counter VALUES (0)"))
    yield database
    await database.close()


async def read_number(database: Database) -> int:
    async with database.reading() as connection:
        return int(await connection.scalar(text("SELECT n FROM counter")) or 0)


async def increment(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(text("UPDATE counter SET n = n + 1"))


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        async with database.reading() as connection:
            await connection.execute(text("UPDATE counter SET n = 1"))
    assert await read_number(database) == 0


async def test_a_read_sees_one_state_whatever_is_written_meanwhile(database: Database) -> None:
    async with database.reading() as connection:
        before = await connection.scalar(text("SELECT n FROM counter"))
        # By somebody else (tests/one_connection.py).
        await asyncio.create_task(increment(database))
        assert await connection.scalar(text("SELECT n FROM counter")) == before
    assert await read_number(database) == 1


async def test_after_a_restart_of_the_server_calls_go_on(database: Database, server: PostgresServer) -> None:
    await increment(database)
    server.stop(signal.SIGQUIT)
    with pytest.raises(DatabaseUnavailable):
        await increment(database)
    with pytest.raises(DatabaseUnavailable):
        await read_number(database)
    server.start()
    deadline = time.monotonic() + 10
    while True:
        try:
            await increment(database)
            break
        except DatabaseUnavailable:
            assert time.monotonic() < deadline
    assert await read_number(database) == 2


async def test_a_writer_that_is_frozen_loses_its_turn_and_can_write_nothing_when_it_wakes(
    database: Database, url: str
) -> None:
    # The patience of the server is a setting of the session; ten seconds would only make the test slower.
    script = _FREEZE.replace("database = database_at", _IMPATIENT + "    database = database_at")
    with subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert (await asyncio.to_thread(child.stdout.readline)).strip() == "holding"
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await increment(database)
            child.send_signal(signal.SIGCONT)
            assert (await asyncio.to_thread(child.stdout.readline)).strip() == "refused"
        finally:
            child.kill()
    assert await read_number(database) == 1


async def test_processes_that_start_together_on_an_empty_database_agree(url: str, tmp_path: Path) -> None:
    processes = [asyncio.to_thread(run_migrate, url, tmp_path / str(number)) for number in range(3)]
    assert [process.returncode for process in await asyncio.gather(*processes)] == [0, 0, 0]
    database = database_at(url)
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == list_revisions()[-1]
    await database.close()


@pytest.mark.parametrize(
    ("database_url", "message"),
    [
        ("postgresql://baobab@127.0.0.1:1/none", "refused"),
        ("postgresql://baobab@{server}/none", "does not exist"),
        ("postgresql://nobody@{server}/postgres", "nobody"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line_at_the_start(
    server: PostgresServer, tmp_path: Path, database_url: str, message: str
) -> None:
    address = database_url.format(server=f"127.0.0.1:{server.port}")
    process = run_migrate(address, tmp_path)
    assert process.returncode == 1
    assert len(process.stderr.strip().splitlines()) == 1
    assert message in process.stderr


async def test_a_schema_of_a_later_version_is_refused_in_one_line(url: str, tmp_path: Path) -> None:
    database = database_at(url)
    async with database.writing() as connection:
        await connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        await connection.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
    await database.close()
    process = run_migrate(url, tmp_path)
    assert process.returncode == 1
    assert "9999" in process.stderr
    assert "Traceback" not in process.stderr


async def test_an_installation_says_that_its_database_is_gone_and_recovers_by_itself(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    application = Server(load_settings({"BAOBAB_DATABASE_URL": url, "BAOBAB_BOOTSTRAP_KEY": KEY}, data=tmp_path))
    async with application.open():
        transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url=ADDRESS, headers={"authorization": f"Bearer {KEY}"}
        ) as client:

            async def make(name: str) -> Any:
                return await client.post("/init", json={"name": name})

            assert (await make("before")).status_code == 201
            server.stop(signal.SIGQUIT)
            try:
                refusal = await make("during")
                assert refusal.status_code == 503
                assert refusal.headers["retry-after"]
                assert refusal.json()["error"]["code"] == "SERVICE_UNAVAILABLE"
                ready = await client.get("/health/ready")
                assert ready.status_code == 503
                assert ready.json()["checks"]["database"] == "failed"
                assert (await client.get("/health")).status_code == 200
            finally:
                server.start()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while (await client.get("/health/ready")).status_code != 200:
                    await asyncio.sleep(0.05)
            assert (await make("after")).status_code == 201
            names = [app["name"] for app in (await client.get("/apps")).json()["apps"]]
            assert sorted(names) == ["after", "before"]


async def test_a_privilege_that_the_databases_user_lacks_is_said_to_be_missing_and_not_to_come_back(
    url: str, tmp_path: Path
) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE ROLE modest LOGIN")
        admin.execute("GRANT ALL ON SCHEMA public TO modest")
        database = admin.info.dbname
        admin.execute(f'GRANT CREATE ON DATABASE "{database}" TO modest'.encode())
    modest = url.replace("//baobab@", "//modest@")
    environment = {"BAOBAB_DATABASE_URL": modest, "BAOBAB_BOOTSTRAP_KEY": KEY}
    server = Server(load_settings(environment, data=tmp_path))
    async with (
        server.open(),
        httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url=ADDRESS) as client,
    ):
        client.headers["authorization"] = f"Bearer {KEY}"
        app_id = (await client.post("/init", json={"name": "a"})).json()["app_id"]
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f'REVOKE CREATE ON DATABASE "{database}" FROM modest'.encode())
        schema = {"tables": {"notes": {"columns": {"id": {"type": "integer", "primaryKey": True}}}}}
        answer = await client.post(f"/v1/{app_id}/schema/apply", json={"schema": schema})
        assert (answer.status_code, answer.json()["code"]) == (500, "STORE_PRIVILEGE_MISSING"), answer.text
        assert "modest" not in answer.text
        assert "retry-after" not in answer.headers


async def test_a_busy_worker_has_as_many_connections_as_the_guide_counts(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    application = Server(load_settings({"BAOBAB_DATABASE_URL": url, "BAOBAB_BOOTSTRAP_KEY": KEY}, data=tmp_path))
    async with application.open():
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(
            transport=transport, base_url=ADDRESS, headers={"authorization": f"Bearer {KEY}"}
        ) as client:

            async def use(number: int) -> None:
                response = await client.post("/init", json={"name": f"app-{number}"})
                assert response.is_success, response.text
                app_id = response.json()["app_id"]
                for key in range(4):
                    written_response = await client.put(f"/v1/{app_id}/kv/{key}", json={"value": key})
                    assert written_response.is_success, written_response.text
                    assert (await client.get(f"/v1/{app_id}/kv/{key}")).json() is not None
                assert (await client.get("/apps")).is_success

            await asyncio.gather(*(use(number) for number in range(30)))
        with psycopg.connect(server.url(), autocommit=True) as observer:
            count = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            row = observer.execute(count, (url.rpartition("/")[2],)).fetchone()
    assert row is not None
    assert 1 < row[0] <= 12


def run_migrate(url: str, data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "baobab", "migrate", "--data", str(data)]
    environment = {"BAOBAB_DATABASE_URL": url, "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


async def test_writers_of_one_tenant_wait_for_each_other_and_for_no_other(url: str) -> None:
    databases = [database_at(url), database_at(url)]
    for database in databases:
        await database.open()
    await migrate(databases[0])
    tenants_inside: list[str] = []

    async def write(database: Database, tenant: str) -> None:
        async with database.writing(lock=tenant) as connection:
            await connection.execute(text("SELECT 1"))
            tenants_inside.append(tenant)

    async with databases[0].writing(lock="app_a") as still:
        await still.execute(text("SELECT 1"))
        waiting = [asyncio.create_task(write(database, "app_a")) for database in databases]
        for database in databases:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.create_task(write(database, "app_b"))
        assert tenants_inside == ["app_b", "app_b"]
    await asyncio.gather(*waiting)
    assert sorted(tenants_inside) == ["app_a", "app_a", "app_b", "app_b"]
    for database in databases:
        await database.close()


async def test_those_who_wait_for_one_tenant_leave_connections_to_others(url: str) -> None:
    """More callers of one app than there are connections: none of them holds one while it waits in this process."""
    database = database_at(url)
    await database.open()
    await migrate(database)

    async def write(tenant: str) -> None:
        async with database.writing(lock=tenant) as connection:
            await connection.execute(text("SELECT 1"))

    async with database.writing(lock="app_a") as still:
        await still.execute(text("SELECT 1"))
        waiting = [asyncio.create_task(write("app_a")) for _ in range(50)]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*(write(f"app_{number}") for number in range(20)))
    await asyncio.gather(*waiting)
    await database.close()


async def test_a_notice_that_is_committed_after_a_later_one_is_heard_all_the_same(url: str) -> None:
    databases = [database_at(url) for _ in range(4)]
    for database in databases:
        await database.open()
    await migrate(databases[0])
    there, *writers = (Notices(database, SystemClock(), Ids()) for database in databases)
    heard_subjects: list[str] = []
    there.subscribe("app", heard_subjects.append)
    slow_unit, undone_unit, quick_unit = (database.build_unit(write=True, lock=None) for database in databases[1:])
    await writers[0].publish(slow_unit, "app", "slow")
    await writers[1].publish(undone_unit, "app", "undone")
    await writers[2].publish(quick_unit, "app", "quick")
    await quick_unit.commit()
    await there.poll()
    assert heard_subjects == ["quick"]
    started_late = Notices(databases[0], SystemClock(), Ids())
    heard_late: list[str] = []
    started_late.subscribe("app", heard_late.append)
    await started_late.start()
    await undone_unit.rollback(ValueError("no"))
    await slow_unit.commit()
    for _ in range(2):
        await there.poll()
        await started_late.poll()
    assert (heard_subjects, heard_late) == (["quick", "slow"], ["slow"])
    await started_late.stop()
    for database in databases:
        await database.close()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_statement_that_is_cancelled_leaves_its_connection_usable(
    database: Database, url: str, is_answered: bool
) -> None:
    """Whether the answer comes in that moment, or the statement must be stopped."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE counter%'"
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as observer:
        holder.execute("LOCK TABLE counter")
        task = asyncio.create_task(increment(database))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while observer.execute(waiting).fetchone() == (0,):
                await asyncio.sleep(0)
        task.cancel()
        if is_answered:
            holder.rollback()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert observer.execute(waiting).fetchone() == (0,)
        holder.rollback()
    await asyncio.gather(*(asyncio.create_task(increment(database)) for _ in range(8)))
    assert await read_number(database) == 8


async def test_a_migration_may_take_longer_than_other_statements(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres_session.SETTINGS, "statement_timeout", "1s")
    monkeypatch.setattr(postgres_session, "_SILENCE_SECONDS", 3)
    database = database_at(url)
    await database.open()
    slow = text("SELECT pg_sleep(4)")
    try:
        async with database.writing(lock=INSTALLATION, bulk=True) as connection:
            await connection.execute(slow)
        with pytest.raises(StatementTimeout):
            await database.execute(slow)
    finally:
        await database.close()


async def test_a_deadlock_is_like_a_lock_that_does_not_come_after_which_a_migration_is_tried_again(
    database: Database, url: str
) -> None:
    with psycopg.connect(url) as other:
        # So that the server ends the other side of the deadlock.
        other.execute("SET deadlock_timeout = '1h'")
        other.execute("SELECT pg_advisory_xact_lock(71)")

        async def cross() -> None:
            async with database.writing(lock=None) as connection:
                await connection.execute(text("SELECT pg_advisory_xact_lock(72)"))
                waiting = asyncio.to_thread(other.execute, "SELECT pg_advisory_xact_lock(72)")
                await asyncio.gather(waiting, connection.execute(text("SELECT pg_advisory_xact_lock(71)")))

        with pytest.raises(LockTimeout):
            await cross()


async def test_a_value_that_is_refused_before_it_is_sent_leaves_no_statement_outside_of_the_transaction(
    database: Database,
) -> None:
    async def write() -> None:
        async with database.writing(lock=None) as connection:
            with pytest.raises(DBAPIError):
                await connection.execute(text("SELECT CAST(:value AS text)"), {"value": "\0"})
            await connection.execute(text("UPDATE counter SET n = n + 1"))
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - the one of above
        await write()
    assert await read_number(database) == 0
    async with database.writing(lock=None) as connection:
        rows = [{"n": number} for number in range(250)]
        await connection.execute(text("INSERT INTO counter VALUES (:n)"), rows)
        with pytest.raises(DBAPIError):
            await connection.execute(text("SELECT CAST(:value AS text)"), [{"value": "a"}, {"value": "\0"}])
        assert await connection.scalar(text("SELECT count(*) FROM counter")) == 251


async def test_a_call_after_a_restart_of_the_server_is_answered(database: Database, server: PostgresServer) -> None:
    """The connections of before are gone, and nothing was made on them."""
    await increment(database)
    server.stop(signal.SIGQUIT)
    server.start()
    await increment(database)
    assert await read_number(database) == 2


async def test_reads_that_wait_for_a_connection_are_each_answered_whatever_becomes_of_the_others(
    database: Database,
) -> None:
    quotient = select(bindparam("number", type_=Integer) / bindparam("by", type_=Integer))
    await database.execute(quotient, {"number": 0, "by": 1})
    for _ in range(8):
        async with occupy_connections(database):
            tasks = [
                asyncio.create_task(database.execute(quotient, {"number": number * 10, "by": by}))
                for number, by in enumerate((10, 10, 0, 10, 10, 10))
            ]
            # More than are sent together.
            more = [asyncio.create_task(database.execute(quotient, {"number": 7, "by": 1})) for _ in range(70)]
            await asyncio.sleep(0.01)
            tasks[4].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [answer.scalar() for answer in answers if not isinstance(answer, BaseException)] == [0, 1, 3, 5]
        assert [type(answers[number]) for number in (2, 4)] == [StatementRefused, asyncio.CancelledError]
        assert [(await task).scalar() for task in more] == [7] * 70
    assert database.connections_in_use == 0


async def test_reads_that_wait_for_a_connection_are_answered_after_a_restart_of_the_server(
    database: Database, server: PostgresServer
) -> None:
    number = select(bindparam("number", type_=Integer))
    await database.execute(number, {"number": 0})
    async with occupy_connections(database):
        tasks = [asyncio.create_task(database.execute(number, {"number": each})) for each in range(6)]
        await asyncio.sleep(0.01)
        server.stop(signal.SIGQUIT)
        server.start()
    assert [(await task).scalar() for task in tasks] == list(range(6))


async def test_reads_for_which_no_connection_becomes_free_are_all_told_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_FREE_SECONDS", 0.2)
    number = select(bindparam("number", type_=Integer))
    await database.execute(number, {"number": 0})
    async with occupy_connections(database):
        tasks = [asyncio.create_task(database.execute(number, {"number": each})) for each in range(100)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(answer) for answer in answers} == {DatabaseUnavailable}
    assert (await database.execute(number, {"number": 7})).all()


@contextlib.asynccontextmanager
async def occupy_connections(database: Database) -> AsyncIterator[None]:
    """All connections of the process are in use during the block."""
    is_over, occupied_connections = asyncio.Event(), asyncio.Semaphore(0)

    async def occupy() -> None:
        async with database.reading() as connection:
            await connection.scalar(text("SELECT 1"))
            occupied_connections.release()
            await is_over.wait()

    occupying = [asyncio.create_task(occupy()) for _ in range(POOL)]
    for _ in occupying:
        await occupied_connections.acquire()
    yield
    is_over.set()
    await asyncio.gather(*occupying)


async def test_a_statement_that_is_prepared_outlives_a_change_of_its_table(database: Database) -> None:
    for _ in range(8):
        assert await read_number(database) == 0
    async with database.writing() as connection:
        await connection.execute(text("ALTER TABLE counter ALTER COLUMN n TYPE bigint"))
    for _ in range(8):
        with contextlib.suppress(DatabaseUnavailable):
            # One of each connection may be refused.
            await read_number(database)
    assert await read_number(database) == 0


async def test_many_different_statements_and_many_rows_at_once(database: Database) -> None:
    """More than the server is asked to keep, each often enough."""
    for _ in range(7):
        async with database.reading() as connection:
            for number in range(220):
                assert await connection.scalar(text(f"SELECT {number} + CAST(:one AS int)"), {"one": 1}) == number + 1
    long = "x" * 5_000_000
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT CAST(:long AS text)"), {"long": long}) == long


async def test_writes_whose_results_nobody_needs_are_made_in_order_and_with_the_commit(database: Database) -> None:
    async with database.writing(lock=None) as connection:
        await connection.write(text("UPDATE counter SET n = n + 1"))
        await connection.write(text("UPDATE counter SET n = n * :by"), [{"by": 10}, {"by": 3}])
        assert await connection.scalar(text("SELECT n FROM counter")) == 30
        await connection.write(text("UPDATE counter SET n = n + 5"))
        with pytest.raises(DBAPIError):
            await connection.execute(text("SELECT CAST(:value AS text)"), {"value": "\0"})
    assert await read_number(database) == 35
    async with database.writing(lock=None) as connection:
        await connection.write(text("UPDATE counter SET n = n + 1"))
    assert await read_number(database) == 36


async def test_a_write_that_fails_later_undoes_the_transaction(database: Database) -> None:
    async def write(*, goes_on: bool) -> None:
        async with database.writing(lock=None) as connection:
            await connection.execute(text("UPDATE counter SET n = n + 1"))
            await connection.write(text("INSERT INTO nowhere VALUES (1)"))
            if goes_on:
                await connection.execute(text("UPDATE counter SET n = n + 1"))

    for goes_on in (False, True):
        with pytest.raises(DatabaseUnavailable):
            await write(goes_on=goes_on)
        assert await read_number(database) == 0
    await increment(database)
    assert await read_number(database) == 1


async def test_a_transaction_in_which_a_statement_has_failed_is_not_taken_for_committed(database: Database) -> None:
    async def write() -> None:
        async with database.writing(lock=None) as connection:
            await connection.execute(text("UPDATE counter SET n = n + 1"))
            with contextlib.suppress(DBAPIError):
                await connection.execute(text("SELECT 1 / 0"))

    with pytest.raises(DatabaseUnavailable):
        await write()
    assert await read_number(database) == 0
