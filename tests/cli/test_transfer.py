"""`baobab transfer`: an installation on files, filled through its interfaces, goes on in a real Postgres or Valkey."""

import asyncio
import contextlib
import hashlib
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import psycopg
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from baobab.cli import main
from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.kv.engine import Engine, Quota
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.objects.store import ObjectStore
from baobab.storage.objects.stores import store_at
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import list_revisions, migrate
from baobab.storage.vectors import extension
from tests.cli.server_process import TIMEOUT_SECONDS, run_baobab, run_server, start_baobab
from tests.conftest import ADDRESS
from tests.ports import free_port
from tests.servers import PostgresServer, start_postgres, start_valkey
from tests.storage.objects.s3_server import REGION, start_s3_server

pytestmark = pytest.mark.long_file

KEY = "bb_sk_" + "M" * 40
OWNER = {"authorization": f"Bearer {KEY}"}
ADA = {"email": "ada@example.com", "password": "correct Horse 7!"}
# Far above 2**53, of other scripts, deep, long: what databases like to bend.
VALUES: list[Any] = [
    9_007_199_254_740_993,
    -0.1,
    "Žluťoučký kůň 🐎",
    None,
    True,
    {"b": [1, {"": 0}], "a": 1e300},
    "x" * 9000,
]
FILES = {
    f"app_{n % 2}/{name}": (body, kind)
    for n, (name, body, kind) in enumerate(
        [
            ("a.txt", b"", "text/plain"),
            ("photos/kůň.png", bytes(range(256)) * 2000, "image/png"),
            ("b c", b"\0", "x/y; z=1"),
        ]
    )
}
"""By key: what is in them, and of what type that is."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
SUGGESTIONS = 450
"""More than two batches of rows."""


@dataclass(frozen=True)
class Source:
    """An installation on files that nobody runs, and what its interfaces say of it."""

    data: Path
    app_id: str
    agent: str
    """A key whose writes need an approval."""
    waiting: str
    """An approval that nobody has decided yet."""
    answers: dict[str, Any]

    @property
    def secret(self) -> str:
        return ",".join((self.data / "secret.key").read_text().split())

    def read_contents(self) -> dict[str, Any]:
        """Reads the contents of the files, table by table."""
        contents: dict[str, Any] = {}
        for file in ("baobab.db", "kv/local/kv.db", "kv/local/kv-ephemeral.db"):
            with contextlib.closing(sqlite3.connect(self.data / file)) as connection:
                for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    contents[f"{file} {table}"] = sorted(map(repr, connection.execute(f'SELECT * FROM "{table}"')))  # noqa: S608
        return contents


@pytest.fixture(scope="module")
def filled_source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Filled by a real server, which was killed: what it had not written back is still in the logs beside the files."""
    data = tmp_path_factory.mktemp("source") / "data"
    with run_server(data, settings={"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise"}) as server:
        with httpx.Client(base_url=server.address, headers=OWNER, timeout=TIMEOUT_SECONDS) as client:
            filling = _fill(client)
        server.kill()
    _multiply_suggestions(data / "baobab.db")
    asyncio.run(_put_files(store_at("", data / "objects" / "local")))
    assert asyncio.run(_increment_once(SqliteEngine(data / "kv/local"), filling["app_id"])) == 1
    copy = shutil.copytree(data, data.with_name("copy"))
    return Source(data, **filling, answers=asyncio.run(_fetch_sqlite_answers(copy, filling["app_id"])))


@pytest.fixture
def source(filled_source: Source, tmp_path: Path) -> Source:
    return Source(**{**vars(filled_source), "data": shutil.copytree(filled_source.data, tmp_path / "data")})


@pytest.fixture(scope="module")
def rows() -> Iterator[PostgresServer]:
    with start_postgres() as server:
        yield server


@pytest.fixture
def target(rows: PostgresServer, request: pytest.FixtureRequest) -> str:
    """An empty database."""
    return rows.create_database(hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16])


def _fill(client: httpx.Client) -> dict[str, str]:
    def create_record(method: str, path: str, body: Any = None) -> Any:
        answer = client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    create_record("POST", "/platform/signup", {**ADA, "name": "Ada 🐎"})
    app_id: str = create_record("POST", "/init", {"name": "todo"})["app_id"]
    other = create_record("POST", "/init", {"name": "notes"})["app_id"]
    for number, value in enumerate(VALUES):
        create_record("PUT", f"/v1/{app_id}/kv/value/{number}", {"value": value})
    create_record("PUT", f"/v1/{app_id}/kv/brief", {"value": 1, "ttl": 3600})
    create_record("PUT", f"/v1/{app_id}/kv/light", {"value": 2, "ttl": 900, "ephemeral": True})
    create_record("PUT", f"/v1/{other}/kv/a", {"value": "of another app"})
    create_record("PUT", f"/v1/{app_id}/kv/_expose/value/*", {"read": "public", "write": "authed"})
    create_record(
        "POST",
        "/suggestions",
        {"category": "improvement", "description": "Přidejte\n\t„uvozovky“.", "agent_context": {"n": 2**70}},
    )
    agent = create_record("POST", "/api-keys", {"name": "agent", "approval": "write"})["key"]
    for key in ("decided", "undecided"):
        response = client.post(f"/v1/{app_id}/kv/{key}/incr", headers={"authorization": f"Bearer {agent}"})
        assert response.status_code == 428, response.text
        waiting: str = client.get("/v1/approvals", params={"status": "pending"}).json()["approvals"][0]["id"]
        if key == "decided":
            create_record("POST", f"/v1/approvals/{waiting}/approve", {})
    while client.get("/v1/approvals", params={"status": "executed"}).json()["approvals"] == []:
        time.sleep(0.02)
    return {"app_id": app_id, "agent": agent, "waiting": waiting}


def _multiply_suggestions(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute("SELECT * FROM suggestions").fetchone())
        marks = ", ".join(f":{name}" for name in row)
        copies = [{**row, "id": f"copy {number}"} for number in range(SUGGESTIONS)]
        connection.executemany(f"INSERT INTO suggestions ({', '.join(row)}) VALUES ({marks})", copies)  # noqa: S608
        connection.commit()


async def _increment_once(engine: Engine, app_id: str) -> int:
    """What an approved call does that a crash may have made again."""
    await engine.open()
    try:
        return await engine.for_attempt("an approved call").incr(app_id, "once", 1, None, Quota())
    finally:
        await engine.close()


async def _put_files(store: ObjectStore) -> None:
    for key, (body, kind) in FILES.items():
        await store.put(key, _iterate_body(body), content_type=kind, max_bytes=len(body))


async def _iterate_body(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def read_files(store: ObjectStore) -> dict[str, tuple[bytes, str]]:
    """Reads the contents of a store, in the form of FILES."""
    files = {}
    for key in await store.list("", "", 1000):
        if key == "~installation/id":
            # By this the store knows whose it is.
            continue
        reader = await store.get(key)
        assert reader is not None
        files[key] = (b"".join([chunk async for chunk in reader]), reader.info.content_type)
    return files


@contextlib.asynccontextmanager
async def open_machine(folder: Path, **settings: str) -> AsyncIterator[httpx.AsyncClient]:
    """A Baobab in this process."""
    environment = {f"BAOBAB_{name.upper()}": value for name, value in settings.items()}
    server = Server(load_settings({**environment, "BAOBAB_PLAN": "enterprise"}, data=folder))
    async with server.open():
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=OWNER) as client:
            yield client


async def _fetch_sqlite_answers(data: Path, app_id: str) -> dict[str, Any]:
    async with open_machine(data) as client:
        return await fetch_answers(client, app_id)


async def fetch_answers(client: httpx.AsyncClient, app_id: str) -> dict[str, Any]:
    """Reads everything that was stored, over the interfaces."""
    store = f"/v1/{app_id}/kv"
    values = [f"{store}/value/{number}" for number in range(len(VALUES))]
    others = [f"{store}/brief", f"{store}/light", f"{store}/decided", f"{store}/_expose", f"{store}/_stats"]
    answers = {}
    for path in ("/apps", "/api-keys", f"/v1/{app_id}/config", f"/v1/{app_id}/audit-logs", *values, *others):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        answers[path] = answer.json()
    for key in answers["/api-keys"]["keys"]:
        # Asking is using.
        del key["last_used_at"]
    return answers


def run_command(*arguments: object, **settings: str) -> Result:
    """Run a command in this process, which is quicker, and in a thread, where it may have an event loop of its own."""
    environment = {f"BAOBAB_{name.upper()}": value for name, value in settings.items()}
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(CliRunner().invoke, main, [*map(str, arguments)], env=environment).result()
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_transfer(source: Source, to: str, *options: object, **settings: str) -> Result:
    return run_command("transfer", "--data", source.data, "--to", to, *options, **settings)


def read_refusal(source: Source, to: str, *options: object, **settings: str) -> str:
    """The one line that a transfer is refused with."""
    process = run_transfer(source, to, *options, **settings)
    assert process.exit_code == 1, process.output
    assert "Verified" not in process.stdout
    (line,) = process.stderr.splitlines()
    return line


def is_verified(result: Result) -> bool:
    return result.exit_code == 0 and "Verified.\n" in result.stdout


async def test_everything_goes_on_in_postgres(source: Source, target: str, tmp_path: Path) -> None:
    before = source.read_contents()
    process = run_baobab("transfer", "--data", source.data, "--to", target)
    assert process.returncode == 0, process.stderr
    assert "Verified.\n" in process.stdout
    assert f"{'suggestions':34} {SUGGESTIONS + 1:>10} rows" in process.stdout
    assert f"BAOBAB_DATABASE_URL={target}" in process.stdout
    assert "give --objects" in process.stdout
    async with open_machine(tmp_path / "machine", database_url=target, secret_key=source.secret) as client:
        assert await fetch_answers(client, source.app_id) == source.answers
        await _check_continues(client, source)
    assert await _increment_once(PostgresEngine(target), source.app_id) == 1
    assert source.read_contents() == before
    with run_server(source.data) as server:
        assert f"copied this folder to {target} on " in server.log_text
    (source.data / "transferred.txt").unlink()
    with run_server(source.data) as server:
        assert "Warning" not in server.log_text


def test_what_no_door_shows_is_right_too(source: Source, target: str) -> None:
    assert is_verified(run_transfer(source, target))
    with psycopg.connect(target) as connection:

        def the(question: bytes) -> Any:
            return connection.execute(question).fetchall()[0][0]

        assert the(b"SELECT agent_context::text FROM suggestions LIMIT 1") == f'{{"n": {2**70}}}'
        assert the(b"SELECT description FROM suggestions LIMIT 1") == "Přidejte\n\t„uvozovky“."
        assert the(b"SELECT nextval(pg_get_serial_sequence('notices', 'id')) > max(id) FROM notices") is True
        assert the(b"SELECT version_num FROM alembic_version") == list_revisions()[-1]
        assert the(b"SELECT to_regclass('baobab_transfer') IS NULL") is True


@pytest.mark.parametrize("kv", ["database", "valkey"])
async def test_entries_go_on_in_either_place_and_files_in_a_bucket(
    source: Source, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kv: Literal["database", "valkey"]
) -> None:
    with start_valkey() as store, start_s3_server() as bucket_server:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        place = f"s3://{bucket_server.create_bucket()}/{kv}?endpoint={bucket_server.address}&region={REGION}"
        process = run_transfer(source, target, "--kv", kv, "--valkey", store.url, "--objects", place)
        assert is_verified(process), process.output
        assert f"BAOBAB_VALKEY_URL={store.url}\n  BAOBAB_OBJECTS_URL={place}\n" in process.stdout
        arguments = {"database_url": target, "valkey_url": store.url, "kv": kv, "secret_key": source.secret}
        async with open_machine(tmp_path / "machine", **arguments) as client:
            assert await fetch_answers(client, source.app_id) == source.answers
            await _check_continues(client, source)
        assert await read_files(store_at(place, tmp_path / "drafts")) == FILES
        if kv == "database":
            engine = engine_at(tmp_path, target, store.url, time.time, kv)
            assert await _increment_once(engine, source.app_id) == 1


async def test_a_call_that_is_not_finished_is_not_carried_to_where_it_could_be_made_twice(
    source: Source, target: str
) -> None:
    with contextlib.closing(sqlite3.connect(source.data / "baobab.db")) as connection:
        connection.execute("UPDATE approvals SET status = 'approved' WHERE status = 'executed'")
        connection.commit()
    with start_valkey() as store:
        assert "is not finished" in read_refusal(source, target, "--valkey", store.url, "--kv", "valkey")


async def _check_continues(client: httpx.AsyncClient, source: Source) -> None:
    """What was begun on files is ended here; what was sealed opens; what is new finds its place."""
    for key, longest in (("brief", 3600), ("light", 900)):
        ttl = (await client.get(f"/v1/{source.app_id}/kv/{key}/ttl")).json()["ttl"]
        assert longest - 10 * TIMEOUT_SECONDS < ttl <= longest
    login = await client.post("/platform/login", json=ADA)
    assert login.status_code == 200, login.text
    agent = {"authorization": f"Bearer {source.agent}"}
    counter = f"/v1/{source.app_id}/kv/undecided"
    assert (await client.post(f"{counter}/incr", headers=agent)).status_code == 428
    assert (await client.post(f"/v1/approvals/{source.waiting}/approve", json={})).status_code == 200
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await client.get(counter)).status_code != 200:
            await asyncio.sleep(0.02)
    # A refused request and a revoked key are rows with numbers that the database gives.
    assert (await client.put(f"/v1/{source.app_id}/kv/a//b", json={"value": 1})).status_code == 400
    key = (await client.post("/api-keys", json={"name": "short-lived"})).json()
    assert (await client.delete(f"/api-keys/{key['key_id']}")).is_success


_WAITING = b"SELECT 1 FROM pg_locks WHERE NOT granted"
_END_OTHERS = (
    b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    b" WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@contextlib.contextmanager
def stall_command(
    *command: object, blocker: psycopg.Connection[Any], lock: bytes, settings: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A command that has been frozen where it needs what `lock` holds; killed at the end."""
    with blocker.transaction(), tempfile.TemporaryFile() as errors:
        blocker.execute(lock)
        process = start_baobab(command, errors, settings=settings)
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while not blocker.execute(_WAITING).fetchall():
                assert process.poll() is None, Path(f"/proc/self/fd/{errors.fileno()}").read_text()
                assert time.monotonic() < deadline, "it does not come to the lock"
                time.sleep(0.01)
            process.send_signal(signal.SIGSTOP)
            yield
        finally:
            process.kill()
            process.wait(TIMEOUT_SECONDS)
    # Its sessions would find out by themselves, but not at once.
    blocker.execute(_END_OTHERS)


def stall_transfer(
    source: Source, target: str, blocker: psycopg.Connection[Any], lock: str, *options: str
) -> contextlib.AbstractContextManager[None]:
    command = ("transfer", "--data", source.data, "--to", target, *options)
    return stall_command(*command, blocker=blocker, lock=lock.encode())


def _kill_transfer(source: Source, target: str, blocker: psycopg.Connection[Any], lock: str, *options: str) -> None:
    with stall_transfer(source, target, blocker, lock, *options):
        pass


async def _prepare_database(url: str) -> None:
    """An empty target may have its tables already; here there is something to lock then."""
    database, engine = database_at(url), PostgresEngine(url)
    await database.open()
    await migrate(database)
    await database.close()
    await engine.open()
    await engine.close()


_STALL_IN_THE_SECOND_BATCH = """
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.id = 'copy 330' THEN PERFORM pg_advisory_xact_lock(77); END IF; RETURN NEW; END $$;
CREATE TRIGGER stall BEFORE INSERT ON suggestions FOR EACH ROW EXECUTE FUNCTION stall();
"""
POINTS = (
    "LOCK TABLE alembic_version IN SHARE MODE",
    "LOCK TABLE accounts IN SHARE MODE",
    "SELECT pg_advisory_xact_lock(77)",
    "LOCK TABLE kv.entries IN SHARE MODE",
    "LOCK TABLE baobab_transfer IN ACCESS SHARE MODE",
)
"""What a transfer needs at its beginning, at its first row, between rows, at its first entry, and at its end."""


async def test_killed_anywhere_it_goes_on_and_ends_right(source: Source, target: str, tmp_path: Path) -> None:
    await _prepare_database(target)
    options = ("--objects", f"file://{tmp_path / 'files'}")
    with psycopg.connect(target, autocommit=True) as blocker:
        blocker.execute(_STALL_IN_THE_SECOND_BATCH.encode())
        for point in POINTS:
            _kill_transfer(source, target, blocker, point, *options)
        count_rows = blocker.execute(b"SELECT count(*) FROM suggestions").fetchall()
        assert count_rows == [(SUGGESTIONS + 1,)]
    half = run_command("init", "--data", tmp_path / "early", database_url=target)
    assert half.exit_code == 1
    assert "unfinished-transfer" in half.stderr, "a server must not start on what is half filled"
    assert is_verified(run_transfer(source, target, *options))
    async with open_machine(tmp_path / "machine", database_url=target, secret_key=source.secret) as client:
        assert await fetch_answers(client, source.app_id) == source.answers
    assert await read_files(store_at(options[1], tmp_path)) == FILES


async def test_nobody_can_start_on_the_source_meanwhile(source: Source, target: str) -> None:
    await _prepare_database(target)
    lock = "LOCK TABLE kv.entries IN SHARE MODE"
    with psycopg.connect(target, autocommit=True) as blocker, stall_transfer(source, target, blocker, lock):
        kept_out = run_command("keys", "list", "--data", source.data)
        assert kept_out.exit_code == 1
        assert "locked" in kept_out.stderr
        assert len(kept_out.stderr.splitlines()) == 1
        assert "in use" in read_refusal(source, target)
    assert run_command("keys", "list", "--data", source.data).exit_code == 0


async def test_a_source_that_was_changed_between_is_not_mixed_with_what_is_there(source: Source, target: str) -> None:
    await _prepare_database(target)
    with psycopg.connect(target, autocommit=True) as blocker:
        _kill_transfer(source, target, blocker, "LOCK TABLE kv.entries IN SHARE MODE")
    assert run_command("keys", "create", "another", "--data", source.data).exit_code == 0
    assert "empty it first" in read_refusal(source, target)


async def test_a_row_that_went_missing_is_a_difference_with_a_name(source: Source, target: str) -> None:
    await _prepare_database(target)
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute(b"CREATE RULE lost AS ON INSERT TO members DO INSTEAD NOTHING")
        connection.execute(
            b"CREATE RULE bent AS ON INSERT TO organisations DO ALSO UPDATE organisations SET name = 'x'"
        )
    line = read_refusal(source, target)
    assert "table members" in line
    assert "members: organisation_id=" in line or "members: account_id=" in line
    assert "table organisations" in line
    assert "table accounts" not in line


async def test_a_running_server_on_the_source_is_one_line(source: Source, target: str) -> None:
    async with open_machine(source.data):
        process = run_baobab("transfer", "--data", source.data, "--to", target)
        assert process.returncode == 1
        (line,) = process.stderr.splitlines()
        assert "in use" in line
    assert is_verified(run_transfer(source, target))


def test_a_dry_run_changes_nothing(source: Source, target: str) -> None:
    before = source.read_contents()
    process = run_transfer(source, target, "--dry-run")
    assert process.exit_code == 0, process.stderr
    assert f"{SUGGESTIONS + 1:>10} rows" in process.stdout
    assert "Verified" not in process.stdout
    with psycopg.connect(target) as connection:
        assert connection.execute(b"SELECT nspname FROM pg_namespace WHERE nspname = 'kv'").fetchall() == []
        assert connection.execute(b"SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall() == []
    assert source.read_contents() == before


async def test_a_dry_run_names_what_a_target_lacks_as_the_transfer_does(
    source: Source, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_folder = shutil.copytree(source.data / "objects" / "local", tmp_path / "taken")
    for options in ((), ("--dry-run",)):
        assert "already holds objects" in read_refusal(source, target, "--objects", f"file://{full_folder}", *options)
    nowhere = ("--valkey", f"redis://127.0.0.1:{free_port()}", "--kv", "valkey")
    for options in ((), ("--dry-run",)):
        assert "the target's key-value store" in read_refusal(source, target, *nowhere, *options)
    monkeypatch.setattr(extension, "_IS_OFFERED", text("SELECT false"))
    assert run_transfer(source, target, "--dry-run").exit_code == 0
    columns = {"id": {"type": "uuid", "primaryKey": True}, "place": "vector(3)"}
    async with open_machine(source.data) as client:
        schema = {"schema": {"tables": {"things": {"columns": columns}}}}
        assert (await client.post(f"/v1/{source.app_id}/schema/apply", json=schema)).is_success
    for options in ((), ("--dry-run",)):
        assert f"lacks the extension pgvector (0.7 or later), and the source holds vectors ({source.app_id}.things" in (
            read_refusal(source, target, *options)
        )


async def test_a_dry_run_names_the_value_that_the_target_would_not_take(
    source: Source, target: str, rows: PostgresServer
) -> None:
    columns = {"id": {"type": "uuid", "primaryKey": True}, "note": "text"}
    indexes = {"by_note": {"columns": ["note"]}}
    async with open_machine(source.data) as client:
        schema = {"schema": {"tables": {"things": {"columns": columns, "indexes": indexes}}}}
        answer = await client.post(f"/v1/{source.app_id}/schema/apply", json=schema)
        assert answer.is_success, answer.text
        # More than a page of an index, and nothing that could be compressed.
        long_text = random.Random(1).randbytes(6000).hex()
        row = {"id": "5a1f7a9e-0000-4000-8000-000000000001", "note": long_text}
        answer = await client.post(f"/v1/{source.app_id}/things", json=row)
        assert answer.is_success, answer.text
    before = source.read_contents()
    refusals = [read_refusal(source, target, *options) for options in (("--dry-run",), ())]
    assert all(f"the tables of {source.app_id}" in refusal for refusal in refusals), refusals
    assert all("things" in refusal and "5a1f7a9e" in refusal for refusal in refusals), refusals
    assert source.read_contents() == before
    with psycopg.connect(target) as connection:
        names = connection.execute(b"SELECT datname FROM pg_database WHERE datname LIKE 'baobab_trial%'").fetchall()
    assert names == []


def test_places_for_files_that_are_none_or_taken_are_one_line(source: Source, target: str, tmp_path: Path) -> None:
    assert "s3://BUCKET/PREFIX" in read_refusal(source, target, "--objects", "ftp://files")
    full_folder = shutil.copytree(source.data / "objects" / "local", tmp_path / "taken")
    assert "already holds objects" in read_refusal(source, target, "--objects", f"file://{full_folder}")
    assert is_verified(run_transfer(source, target, "--objects", f"file://{tmp_path / 'empty'}"))
    assert asyncio.run(read_files(store_at("", tmp_path / "empty"))) == FILES


def test_a_target_that_holds_an_installation_is_left_as_it_is(source: Source, target: str, tmp_path: Path) -> None:
    run_command("init", "--data", tmp_path / "other", database_url=target)
    assert "already holds rows" in read_refusal(source, target)
    # Transferred twice is no better.
    assert "already holds rows" in read_refusal(source, target, "--dry-run")


async def test_a_valkey_that_holds_other_apps_is_left_as_it_is(
    source: Source, target: str, rows: PostgresServer, tmp_path: Path
) -> None:
    with start_valkey() as valkey:
        own = {"database_url": rows.create_database("other"), "valkey_url": valkey.url, "kv": "valkey"}
        own["bootstrap_key"] = KEY
        async with open_machine(tmp_path / "other", **own) as client:
            theirs = (await client.post("/init", json={"name": "theirs"})).json()["app_id"]
            assert (await client.put(f"/v1/{theirs}/kv/a", json={"value": 1, "ephemeral": True})).is_success
            line = read_refusal(source, target, "--valkey", valkey.url, "--kv", "valkey")
            assert f"already holds data (space {theirs})" in line
            assert (await client.get(f"/v1/{theirs}/kv/_stats")).json()["keys_total"] == 1
    assert is_verified(run_transfer(source, target)), "nothing was begun"


def test_a_target_that_cannot_be_reached_is_one_line(source: Source, rows: PostgresServer, target: str) -> None:
    assert "the target" in read_refusal(source, "postgresql://baobab@127.0.0.1:1/baobab")
    assert "the target" in read_refusal(source, rows.url("nothing_of_this_name"))
    unreachable = ("--kv", "valkey", "--valkey", "redis://127.0.0.1:1/0")
    assert "the target's key-value store" in read_refusal(source, target, *unreachable)
    assert "--to must be postgresql://" in read_refusal(source, f"sqlite:///{source.data}/other.db")


def test_an_account_without_rights_is_one_line(source: Source, rows: PostgresServer, target: str) -> None:
    rows.execute("CREATE ROLE reader LOGIN")
    line = read_refusal(source, target.replace("baobab@", "reader@"))
    assert "permission denied" in line
    dry_run = run_transfer(source, target.replace("baobab@", "reader@"), "--dry-run")
    assert "The values were not tried, because no database could be created for that" in dry_run.stdout
    assert is_verified(run_transfer(source, target)), "nothing was begun"


def test_a_source_that_is_none_is_one_line(source: Source, target: str, tmp_path: Path) -> None:
    nothing = Source(**{**vars(source), "data": tmp_path / "nothing"})
    assert "baobab.db does not exist" in read_refusal(nothing, target)
    assert not (tmp_path / "nothing").exists()
    assert "unset BAOBAB_DATABASE_URL" in read_refusal(source, target, database_url=target)
    assert "BAOBAB_REGION" in read_refusal(source, target, region="mars")


def test_a_source_of_an_older_schema_is_told_to_migrate(source: Source, target: str) -> None:
    with contextlib.closing(sqlite3.connect(source.data / "baobab.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (list_revisions()[-2],))
        connection.commit()
    assert "run `baobab migrate` first" in read_refusal(source, target)
