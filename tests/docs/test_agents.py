"""What docs/agents.md tells a reader to type works as it stands there."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import httpx
import pytest

from baobab.tools import toolsets
from baobab.tools.core.registry import Registry
from tests.cli.server_process import TIMEOUT_SECONDS, run_server
from tests.clients.install import NODE
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.docs.shell import check_order, run_shell, set_variables

PAGE = ROOT / "docs/agents.md"


def test_the_examples_of_the_page_about_agents_run(tmp_path: Path) -> None:
    with run_server(tmp_path / "data") as server:
        script = "\n".join(find_blocks(PAGE.read_text(), "sh"))
        process = run_shell(set_variables(server) + script)
    assert "event: run_end" in process
    assert '"max_runs_per_user_per_hour":20' in process
    assert '"output":8' in process
    assert '"status":"cancelled"' in process
    check_order(process, '"open":["changes.refunded"],"run_as":"app"', "approved", '"refunded":20')


Webhook = tuple[dict[str, str], bytes]
SAY = {
    "spec_version": 1,
    "entry": "done",
    "nodes": {"done": {"type": "end", "output_template": "Grüße"}},
    "edges": [],
}
PYTHON = """
import json, sys
secret, headers = json.loads(sys.argv[1])
print(verify(secret, headers, sys.stdin.buffer.read()))
"""
JAVASCRIPT = """
import { readFileSync } from "node:fs";
const [secret, headers] = JSON.parse(process.argv[2]);
console.log(verify(secret, headers, readFileSync(0)));
"""


@contextmanager
def start_receiver() -> Iterator[tuple[str, "SimpleQueue[Webhook]"]]:
    """The address of a receiver of webhooks, and what it has received."""
    webhooks: SimpleQueue[Webhook] = SimpleQueue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            webhooks.put(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody reads along."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    serving_ = Thread(target=server.serve_forever)
    serving_.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", webhooks
    finally:
        server.shutdown()
        serving_.join()
        server.server_close()


@pytest.fixture(scope="module")
def signed_webhook(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Webhook]:
    """A secret, and a webhook that a server has signed with it and with a later one."""
    settings = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
    with (
        start_receiver() as (address, webhooks),
        run_server(tmp_path_factory.mktemp("s") / "data", settings=settings) as server,
    ):
        by = {"Authorization": f"Bearer {server.key}"}
        with httpx.Client(base_url=server.address, headers=by, timeout=TIMEOUT_SECONDS) as client:
            app = client.post("/init", json={"name": "told"}).json()["app_id"]
            client.post(f"/v1/{app}/agents", json={"name": "say", "graph_spec": SAY}).raise_for_status()
            secrets = [client.post(f"/v1/{app}/webhook-secret/rotate").json()["secret"] for _ in range(2)]
            body = {"input": {}, "webhook_url": address}
            client.post(f"/v1/{app}/agents/say/runs", json=body).raise_for_status()
            return secrets[0], webhooks.get(timeout=TIMEOUT_SECONDS)


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_programs_of_the_page_verify_a_webhook_and_refuse_a_forged_one(
    tmp_path: Path, signed_webhook: tuple[str, Webhook], language: str
) -> None:
    (verifying,) = find_blocks(PAGE.read_text(), language)
    program = tmp_path / {"python": "verify.py", "js": "verify.mjs"}[language]
    program.write_text(verifying + {"python": PYTHON, "js": JAVASCRIPT}[language])
    runner = {"python": sys.executable, "js": shutil.which("node", path=str(NODE)) or shutil.which("node")}[language]
    assert runner, "Node.js is needed: `make e2e` installs it, too."

    def verify_webhook(secret: str, headers: dict[str, str], body: bytes) -> str:
        command = [runner, str(program), json.dumps([secret, headers])]
        process = subprocess.run(command, input=body, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        assert process.returncode == 0, process.stderr
        return process.stdout.decode().strip().lower()

    secret, (headers, body) = signed_webhook
    assert verify_webhook(secret, headers, body) == "true"
    assert verify_webhook(secret, headers, body.replace(b"completed", b"cancelled")) == "false"
    assert verify_webhook("whsec_" + "A" * 56, headers, body) == "false"
    long_ago = {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1000)}
    assert verify_webhook(secret, long_ago, body) == "false"


def test_the_builtins_that_the_page_says_do_not_exist_yet_do_not() -> None:
    _, _, rest = (ROOT / "docs/graph-spec.md").read_text().partition("| Not there yet | Until then |\n|---|---|\n")
    missing = {
        name for line in rest.partition("\n\n")[0].splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert "auth_user_lookup" in missing
    registry = Registry(toolsets())
    assert not [name for name in missing if registry.find_for_graphs(name)]
