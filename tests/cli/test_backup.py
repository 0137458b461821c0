"""`baobab backup` and `baobab restore`: what was acknowledged is there again, and a damaged copy is never taken."""

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from baobab.cli import main
from baobab.storage.backup.backup import Source, back_up
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server

ROUNDS = 3


def run_command(*arguments: object, **settings: str) -> Result:
    """A command in this process, which costs a tenth of one in its own. None of them opens what a test has open."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=settings)


def read_refusal(*arguments: object, **settings: str) -> str:
    process = run_command(*arguments, **settings)
    assert process.exit_code == 1, process.output
    assert process.stdout == ""
    (line,) = process.stderr.splitlines()
    return line


def read_output(*arguments: object) -> str:
    process = run_command(*arguments)
    assert process.exit_code == 0, process.stderr
    return process.stdout


def open_client(server: ServerProcess, key: str = "") -> httpx.Client:
    return httpx.Client(
        base_url=server.address, headers={"authorization": f"Bearer {key or server.key}"}, timeout=TIMEOUT_SECONDS
    )


@pytest.fixture(scope="module")
def data_and_backup(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data folder, and a backup of it."""
    folder = tmp_path_factory.mktemp("kept")
    read_output("init", "--data", folder / "data")
    (folder / "data" / "objects" / "app_1").mkdir(parents=True)
    for name in ("notes.db", "yarn.lock"):
        (folder / "data" / "objects" / "app_1" / name).write_bytes(b"neither what its name says: a user has stored it")
    (folder / "data" / "objects" / ".drafts").mkdir()
    (folder / "data" / "objects" / ".drafts" / "half").write_bytes(b"an upload that is not whole yet")
    read_output("backup", folder / "backup", "--data", folder / "data")
    return folder / "data", folder / "backup"


def backup_copy(data_and_backup: tuple[Path, Path], tmp_path: Path) -> Path:
    """A backup that a test may spoil."""
    _, backup = data_and_backup
    read_output("restore", backup, "--data", tmp_path / "whole")
    (tmp_path / "whole" / "manifest.json").write_bytes((backup / "manifest.json").read_bytes())
    return tmp_path / "whole"


def test_what_was_acknowledged_before_a_backup_is_in_it_while_clients_go_on_writing(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", settings={"BAOBAB_PLAN": "enterprise"}) as server, open_client(server) as client:
        key, app = server.key, client.post("/init", json={"name": "ledger"}).json()["app_id"]
        acknowledged_counts, has_begun, enough = [0], threading.Event(), threading.Event()

        def write() -> None:
            while not enough.is_set():
                response = client.post(f"/v1/{app}/kv/count/incr").raise_for_status()
                client.post("/api-keys", json={"name": "load"}).raise_for_status()
                acknowledged_counts[0] = response.json()["value"]
                has_begun.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert has_begun.wait(TIMEOUT_SECONDS)
            before = acknowledged_counts[0]
            read_output("backup", tmp_path / "backup", "--data", tmp_path / "data")
            after = acknowledged_counts[0] + 1
        finally:
            enough.set()
            writer.join()
    read_output("restore", tmp_path / "backup", "--data", tmp_path / "restored")
    with run_server(tmp_path / "restored") as server, open_client(server, key) as client:
        value = client.get(f"/v1/{app}/kv/count").json()["value"]
    assert before <= value <= after
    # Each key was made after its count: at one moment there is one for each, or the count is one ahead.
    manifest = json.loads((tmp_path / "backup" / "manifest.json").read_text())
    first_and_load = manifest["files"]["baobab.db"]["rows"]["api_keys"]
    assert value - (first_and_load - 1) in (0, 1)


def test_all_databases_are_copied_as_they_were_at_one_moment(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "kv" / "local").mkdir(parents=True)
    rows, entries = data / "baobab.db", data / "kv" / "local" / "kv.db"
    for file in (rows, entries):
        with closing(sqlite3.connect(file)) as database, database:
            database.executescript("PRAGMA journal_mode=WAL; CREATE TABLE n (n INTEGER); INSERT INTO n VALUES (0);")
            database.execute("CREATE TABLE alembic_version (version_num TEXT)")
            database.execute("INSERT INTO alembic_version VALUES ('0001')")
    # First the one, then the other: a copy in which the second is ahead is of two moments.
    script = """
import sqlite3, sys
first, second = (sqlite3.connect(file, timeout=30, isolation_level=None) for file in sys.argv[1:])
print(flush=True)
for _ in range(20_000):
    first.execute("UPDATE n SET n = n + 1")
    second.execute("UPDATE n SET n = n + 1")
"""
    with subprocess.Popen([sys.executable, "-c", script, str(rows), str(entries)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        for number in range(ROUNDS):
            backup = tmp_path / f"backup-{number}"
            back_up(Source(data, rows), backup, "0")
            ahead, behind = (_read_number(backup / file.relative_to(data)) for file in (rows, entries))
            assert ahead - behind in (0, 1)
        writer.kill()


def _read_number(file: Path) -> int:
    with closing(sqlite3.connect(file)) as database:
        number: int = database.execute("SELECT n FROM n").fetchone()[0]
        return number


def test_a_backup_holds_rows_values_files_and_the_key_and_nothing_passing(data_and_backup: tuple[Path, Path]) -> None:
    _, backup = data_and_backup
    manifest = json.loads((backup / "manifest.json").read_text())
    # By the last, and by an entry, the stores know whose they are.
    object_files = {"objects/app_1/notes.db", "objects/app_1/yarn.lock", "objects/local/%7einstallation+/id="}
    assert set(manifest["files"]) == {"baobab.db", "kv/local/kv.db", "secret.key", *object_files}
    assert manifest["files"]["baobab.db"]["rows"]["accounts"] == 1
    assert manifest["files"]["kv/local/kv.db"]["rows"]["entry"] == 1
    backup_files = {path.relative_to(backup).as_posix() for path in backup.rglob("*") if path.is_file()}
    assert backup_files == {*manifest["files"], "manifest.json"}
    for path in (backup, *backup.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_restored_folder_is_the_one_that_was_backed_up(data_and_backup: tuple[Path, Path], tmp_path: Path) -> None:
    data, backup = data_and_backup
    (tmp_path / "again").mkdir()
    assert read_output("restore", backup, "--data", tmp_path / "again").startswith("Restored 6 files")
    assert read_output("keys", "list", "--data", tmp_path / "again") == read_output("keys", "list", "--data", data)
    file = Path("objects", "app_1", "notes.db")
    assert (tmp_path / "again" / file).read_bytes() == (data / file).read_bytes()


def test_the_secret_key_stays_out_when_told_so(data_and_backup: tuple[Path, Path], tmp_path: Path) -> None:
    data, _ = data_and_backup
    process = run_command("backup", tmp_path / "backup", "--data", data, "--without-secret-key")
    assert "does not hold the key that encrypts secrets" in process.stderr
    process = run_command("restore", tmp_path / "backup", "--data", tmp_path / "again")
    assert "secret.key" in process.stderr
    assert "secret.key" in read_refusal("keys", "list", "--data", tmp_path / "again")
    (tmp_path / "again" / "secret.key").write_bytes((data / "secret.key").read_bytes())
    read_output("keys", "list", "--data", tmp_path / "again")


def _flip_byte(backup: Path) -> None:
    file = backup / "kv" / "local" / "kv.db"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)


def _add_outside_path(backup: Path) -> None:
    manifest = json.loads((backup / "manifest.json").read_text())
    manifest["files"]["../outside"] = manifest["files"].pop("secret.key")
    (backup / "manifest.json").write_text(json.dumps(manifest))
    (backup.parent / "outside").write_bytes((backup / "secret.key").read_bytes())


def _set_later_version(backup: Path) -> None:
    manifest = json.loads((backup / "manifest.json").read_text())
    (backup / "manifest.json").write_text(json.dumps({**manifest, "schema_revision": "9999", "version": "9.9.9"}))


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        pytest.param(_flip_byte, "kv.db", id="a byte changed"),
        pytest.param(lambda backup: (backup / "baobab.db").unlink(), "baobab.db", id="a file gone"),
        pytest.param(lambda backup: (backup / "manifest.json").unlink(), "manifest.json", id="interrupted"),
        pytest.param(lambda backup: (backup / "manifest.json").write_text("{"), "manifest.json", id="half a manifest"),
        pytest.param(_add_outside_path, "../outside", id="a name that leads out"),
        pytest.param(_set_later_version, "9.9.9", id="of a later version"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused_in_one_line(
    data_and_backup: tuple[Path, Path], tmp_path: Path, spoil: Callable[[Path], object], word: str
) -> None:
    backup = backup_copy(data_and_backup, tmp_path)
    spoil(backup)
    (tmp_path / "mount").mkdir()
    for folder in ("again", "deep/below", "mount"):
        assert word in read_refusal("restore", backup, "--data", tmp_path / folder)
    # What it has made is gone, and what was there is as it was.
    assert not (tmp_path / "again").exists()
    assert not (tmp_path / "deep").exists()
    assert not list((tmp_path / "mount").iterdir())


def test_nothing_that_is_there_is_written_over(data_and_backup: tuple[Path, Path]) -> None:
    data, backup = data_and_backup
    before = (backup / "manifest.json").read_bytes()
    assert "not an empty folder" in read_refusal("backup", backup, "--data", data)
    assert "not an empty folder" in read_refusal("restore", backup, "--data", data)
    assert (backup / "manifest.json").read_bytes() == before


def test_a_backup_into_the_data_folder_itself_is_refused(data_and_backup: tuple[Path, Path]) -> None:
    data, _ = data_and_backup
    assert "elsewhere" in read_refusal("backup", data / "backup", "--data", data)


def test_a_folder_that_is_no_data_folder_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert "baobab.db" in read_refusal("backup", tmp_path / "backup", "--data", tmp_path / "data")
    with closing(sqlite3.connect(tmp_path / "data" / "baobab.db")) as database, database:
        database.execute("CREATE TABLE other (n INTEGER)")
    assert "baobab.db" in read_refusal("backup", tmp_path / "backup", "--data", tmp_path / "data")
    assert not (tmp_path / "backup").exists()


def test_rows_in_postgres_are_left_to_its_own_tool(tmp_path: Path) -> None:
    address = "postgresql://baobab@127.0.0.1:1/baobab"
    line = read_refusal("backup", tmp_path / "backup", "--data", tmp_path / "data", BAOBAB_DATABASE_URL=address)
    assert "pg_dump" in line
    assert not (tmp_path / "backup").exists()
