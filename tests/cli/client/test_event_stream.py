"""A stream of logs that breaks off goes on where it was."""

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.cli.client.conftest import Terminal


def make_row(number: int) -> dict[str, Any]:
    """A call as the server describes it."""
    return {
        "timestamp": f"2026-11-30T10:00:0{number}Z",
        "method": "GET",
        "path": "/fn/talk",
        "statusCode": 200,
        "duration": 1.0,
        "memoryUsed": None,
        "error": None,
        "stack": None,
        "consoleLogs": [],
        "version": 1,
        "request_id": f"req_{number}",
        "shutdown_reason": None,
        "trigger": "http",
    }


class BreakingServer(ThreadingHTTPServer):
    """Sends one call in each stream, again what it sent before, and breaks off. It notes where a client goes on."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.last_ids: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    server: BreakingServer

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        if not self.path.split("?")[0].endswith("/stream"):
            self.wfile.write(json.dumps({"logs": [], "hasMore": False}).encode())
            return
        self.server.last_ids.append(self.headers.get("last-event-id"))
        self.wfile.write(b": follows\n\n")
        for number in range(len(self.server.last_ids)):
            data = json.dumps(make_row(number)).encode()
            self.wfile.write(b"id: id-%d\nevent: log\ndata: %b\n\n" % (number, data))
        self.wfile.write(b"id: half\ndata: {")

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def breaking_server() -> Iterator[BreakingServer]:
    with BreakingServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_each_call_is_shown_once_though_the_connection_breaks_and_calls_come_again(
    terminal: Terminal, breaking_server: BreakingServer
) -> None:
    terminal.environment["BAOBAB_URL"] = f"http://127.0.0.1:{breaking_server.server_port}"
    with terminal.start("functions", "logs", "talk", "--follow", "--json") as process:
        assert process.stdout is not None
        shown_ids: list[str] = []
        while len(shown_ids) < 3:
            line = process.stdout.readline()
            assert line, "the command ended"
            if line.startswith("{"):
                shown_ids.append(json.loads(line)["request_id"])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert shown_ids == ["req_0", "req_1", "req_2"]
    assert breaking_server.last_ids[:3] == [None, "id-0", "id-1"]
