"""`baobab serve --live` and `--copy`: which of two installations lives is said where they are started."""

import json
import queue
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.cli.server_process import TIMEOUT_SECONDS, run_baobab, run_server
from tests.cli.test_backup import open_client, read_output

JOB = (
    "INSERT INTO jobs (id, kind, tenant, arguments, due_at, epoch, attempts, created_at) VALUES"
    " ('mail:1', 'mail_deliver', 'platform', '{\"app_id\": \"installation\", \"mail_id\": \"1\"}', ?, 0, 0, ?)"
)


class Receiver(ThreadingHTTPServer):
    """Whom triggers of the installations tell what has happened."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ids: queue.Queue[int] = queue.Queue()
        """Those of the rows that were told of."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(204)
        self.end_headers()
        self.server.ids.put(event["data"]["row"]["id"])

    def log_message(self, *_: object) -> None:
        """Requests are counted, not printed."""


@contextmanager
def start_receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        Thread(target=receiver.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            receiver.shutdown()


def leave_mail(data: Path) -> None:
    """A delivery that waits, as after a crash."""
    with closing(sqlite3.connect(data / "baobab.db")) as database, database:
        moment = database.execute("SELECT created_at FROM installation").fetchone()[0]
        database.execute(JOB, (moment, moment))


def test_a_restored_or_copied_folder_is_a_copy_until_it_is_said_to_live_and_a_moved_one_lives_on(
    tmp_path: Path,
) -> None:
    with run_server(tmp_path / "data") as server:
        key = server.key
        assert "THIS IS A COPY" not in server.log_text
    leave_mail(tmp_path / "data")
    read_output("backup", tmp_path / "backup", "--data", tmp_path / "data")
    read_output("restore", tmp_path / "backup", "--data", tmp_path / "restored")
    shutil.copytree(tmp_path / "data", tmp_path / "copied")
    (tmp_path / "data").rename(tmp_path / "moved")
    for name, why in (("restored", "restored from a backup of"), ("copied", "not at the place where it lived")):
        with run_server(tmp_path / name) as server, open_client(server, key) as client:
            assert "THIS IS A COPY" in server.log_text
            assert why in server.log_text
            state = client.get("/v1/installation").json()
            assert (state["state"], [each["kind"] for each in state["waiting"]]) == ("copy", ["mail_deliver"])
    with run_server(tmp_path / "moved") as server:
        assert "THIS IS A COPY" not in server.log_text

    refusal = run_baobab("serve", "--live", "--data", tmp_path / "restored")
    assert refusal.returncode == 1
    assert "1 mail_deliver" in refusal.stderr
    assert "--live --waiting drop" in refusal.stderr
    with run_server(tmp_path / "restored", "--live", "--waiting", "drop") as server:
        assert "THIS IS A COPY" not in server.log_text
    with run_server(tmp_path / "restored") as server, open_client(server, key) as client:
        assert client.get("/v1/installation").json()["state"] == "live"


def test_what_no_server_can_tell_from_the_original_is_made_a_copy_by_saying_so(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", "--copy") as server, open_client(server) as client:
        assert "THIS IS A COPY" in server.log_text
        assert "copy" in client.get("/health/ready").json()["checks"]["outgoing"]
        answer = client.post("/v1/installation/live", json={})
        assert answer.json()["state"] == "live"
        assert "outgoing" not in client.get("/health/ready").json()["checks"]
    assert run_baobab("serve", "--live", "--copy", "--data", tmp_path / "data").returncode == 2


def test_a_restored_backup_sends_nothing_beside_the_server_that_it_is_of(tmp_path: Path) -> None:
    settings = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
    with (
        start_receiver() as receiver,
        run_server(tmp_path / "data", settings=settings) as server,
        open_client(server) as client,
    ):
        base = f"/v1/{client.post('/init', json={'name': 'desk'}).json()['app_id']}"
        schema = {"tables": {"tickets": {"columns": {"id": {"type": "serial", "primaryKey": True}}}}}
        trigger = {"event": "row.inserted", "table": "tickets", "webhook": f"{receiver.url}/new"}
        assert client.post(f"{base}/schema/apply", json={"schema": schema}).is_success
        assert client.put(f"{base}/triggers/new", json=trigger).is_success
        read_output("backup", tmp_path / "backup", "--data", tmp_path / "data")
        read_output("restore", tmp_path / "backup", "--data", tmp_path / "restored")
        with (
            run_server(tmp_path / "restored", settings=settings) as copy,
            open_client(copy, server.key) as guest,
        ):
            for number in range(3):
                assert guest.post(f"{base}/tickets", json={"id": 100 + number}).is_success
            assert guest.get("/v1/installation").json()["state"] == "copy"
            assert client.post(f"{base}/tickets", json={"id": 1}).is_success
            assert receiver.ids.get(timeout=TIMEOUT_SECONDS) == 1
            assert receiver.ids.empty()
            answer = guest.post("/v1/installation/live", json={"waiting": "run"})
            assert answer.json()["state"] == "live", answer.text
            # What it held back is sent now, each once: so it had sent nothing before.
            assert {receiver.ids.get(timeout=TIMEOUT_SECONDS) for _ in range(3)} == {100, 101, 102}
    assert receiver.ids.empty()
