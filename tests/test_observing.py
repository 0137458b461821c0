"""The access log and traces, as an operator sees them."""

import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from baobab.logs import JsonLines
from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.sql.database import DatabaseUnavailable
from tests.conftest import ADDRESS, KEY, Baobab


@contextlib.contextmanager
def start_collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An OTLP/HTTP collector that keeps what it is sent."""
    requests: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _ask(tmp_path: Path, path: str, **environment: str) -> None:
    server = Server(load_settings({"BAOBAB_BOOTSTRAP_KEY": KEY, **environment}, data=tmp_path / "data"))
    transport = httpx.ASGITransport(app=server)
    async with server.open(), httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        await client.get(path, headers={"authorization": f"Bearer {KEY}", "x-request-id": "seen-by-operator"})


async def test_one_setting_sends_a_span_for_each_call(tmp_path: Path) -> None:
    with start_collector() as (url, requests):
        await _ask(tmp_path, "/apps", BAOBAB_OTEL_URL=url)
    assert [path for path, _ in requests] == ["/v1/traces"]
    ((_, spans),) = requests
    assert b"apps_list" in spans
    assert b"seen-by-operator" in spans
    assert KEY.encode() not in spans


@pytest.mark.parametrize(("share", "lines"), [("1", 1), ("0", 0)])
async def test_the_access_log_is_json_lines_of_the_share_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, share: str, lines: int
) -> None:
    with caplog.at_level(logging.INFO, logger="baobab.access"):
        await _ask(tmp_path, "/apps", BAOBAB_ACCESS_LOG=share)
    records = [record for record in caplog.records if record.name == "baobab.access"]
    assert len(records) == lines
    for record in records:
        line = json.loads(JsonLines().format(record))
        assert (line["method"], line["path"], line["status"], line["tool"]) == ("GET", "/apps", 200, "apps_list")
        assert line["request_id"] == "seen-by-operator"
        assert KEY not in json.dumps(line)


async def test_why_a_store_does_not_answer_is_in_the_log_and_not_in_the_answer(
    baobab: Baobab, caplog: pytest.LogCaptureFixture
) -> None:
    app_id = await baobab.create_app()
    (stores,) = baobab.application.services.regions.values()
    await stores.kv.close()
    answer = await baobab.client.get(f"/v1/{app_id}/kv/n", headers={**baobab.owner, "x-request-id": "seen-by-operator"})
    await stores.kv.open()
    assert answer.status_code == 503
    assert "the store is closed" not in answer.text
    (line,) = [json.loads(JsonLines().format(record)) for record in caplog.records if record.levelname == "WARNING"]
    assert (line["request_id"], line["tool"]) == ("seen-by-operator", "kv_get")
    assert line["reason"] == "the store is closed"


async def test_why_the_database_does_not_answer_is_in_the_log_before_there_is_a_caller(
    baobab: Baobab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseUnavailable("UndefinedColumn", "there is no such column")

    nobody_knows = {"authorization": f"Bearer {KEY[:-1]}x", "x-request-id": "seen-by-operator"}
    with monkeypatch.context() as patch:
        patch.setattr(baobab.application.services.database, "execute", fail)
        answer = await baobab.client.get("/apps", headers=nobody_knows)
    assert answer.status_code == 503
    assert "column" not in answer.text
    # Jobs may look for work at that moment, and find the same.
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records if record.levelname == "WARNING"]
    (line,) = [line for line in lines if line.get("request_id") == "seen-by-operator"]
    assert line["reason"] == "there is no such column"


def test_a_library_that_is_imported_in_a_thread_makes_no_test_fail_by_its_logger() -> None:
    for _ in logging.Logger.manager.loggerDict.values():
        logging.getLogger("late library")
    assert "late library" in logging.Logger.manager.loggerDict
