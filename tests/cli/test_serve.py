"""`baobab serve`, as an operator meets it."""

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_baobab, run_server

KEY = "bb_sk_" + "B" * 40


@pytest.fixture(scope="module")
def first_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("first") / "data", program=("-m", "baobab")) as server:
        yield server


def test_the_first_start_prints_one_short_block_with_the_key_once(first_start: ServerProcess) -> None:
    log_text = first_start.log_text
    assert log_text.count("bb_sk_") == 1
    assert f"API key  {first_start.key}   (shown this once)\n" in log_text
    assert f"REST     {first_start.address}\n" in log_text
    assert f"MCP      {first_start.address}/mcp   (`baobab connect`" in log_text
    assert f"Docs     {first_start.address}/docs\n" in log_text
    assert "mcpServers" not in log_text
    assert len(log_text.splitlines()) <= 10
    assert httpx.get(f"{first_start.address}/docs", timeout=TIMEOUT_SECONDS).status_code == 200


def test_a_printed_link_signs_in_to_the_console_once(first_start: ServerProcess) -> None:
    (printed_link,) = re.findall(r"Set up   (http\S+)   \(once, within 2 minutes\)", first_start.log_text)
    command_link = run_baobab("sign-in-link", "--data", first_start.log.with_name("data")).stdout.split()[0]
    for address in (printed_link, command_link):
        form = {"link": address.partition("?link=")[2]}
        path, headers = f"{first_start.address}/console/sign-in", {"origin": first_start.address}
        codes = [httpx.post(path, data=form, headers=headers, timeout=60).status_code for _ in range(2)]
        assert codes == [303, 401]


def test_nobody_else_may_read_the_data_folder(first_start: ServerProcess) -> None:
    data = first_start.log.with_name("data")
    for path in (data, *data.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_second_start_does_not_print_the_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with run_server(data) as server:
        key = server.key
        server.terminate()
    with run_server(data) as server:
        assert "bb_sk_" not in server.log_text
        assert "Set up" not in server.log_text
        assert "Console  http" in server.log_text
        assert (
            httpx.get(
                f"{server.address}/apps", headers={"authorization": f"Bearer {key}"}, timeout=TIMEOUT_SECONDS
            ).status_code
            == 200
        )


def test_a_second_server_on_a_data_folder_names_the_first(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with run_server(data) as first, run_server(data) as second:
        assert "Another server" not in first.log_text
        assert f"(process {first.process.pid})" in second.log_text
        assert str(data) in second.log_text
        first.kill()
        second.terminate()
    with run_server(data) as third:
        assert "Another server" not in third.log_text


def test_the_bootstrap_key_works_from_the_first_request_on(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", settings={"BAOBAB_BOOTSTRAP_KEY": KEY}) as server:
        # Whoever has chosen it has it; a log needs not.
        assert KEY not in server.log_text
        assert (
            httpx.get(
                f"{server.address}/apps", headers={"authorization": f"Bearer {KEY}"}, timeout=TIMEOUT_SECONDS
            ).status_code
            == 200
        )


def test_sigterm_lets_a_request_under_way_finish(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", settings={"BAOBAB_BOOTSTRAP_KEY": KEY}) as server:
        body = b'{"name": "slow"}'
        connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=TIMEOUT_SECONDS)
        connection.putrequest("POST", "/init")
        connection.putheader("Authorization", f"Bearer {KEY}")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:5])
        time.sleep(0.3)
        stopping = threading.Thread(target=server.terminate)
        stopping.start()
        time.sleep(0.3)
        connection.send(body[5:])
        answer = connection.getresponse()
        assert answer.status == 201
        assert json.loads(answer.read())["app_id"]
        connection.close()
        stopping.join(TIMEOUT_SECONDS)
        assert not stopping.is_alive()
        assert "Traceback" not in server.log_text


def test_every_worker_refuses_a_key_that_one_has_revoked(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", "--workers", 2, settings={"BAOBAB_BOOTSTRAP_KEY": KEY}) as server:
        owner = {"authorization": f"Bearer {KEY}"}
        body = httpx.post(
            f"{server.address}/api-keys", json={"name": "short-lived"}, headers=owner, timeout=TIMEOUT_SECONDS
        ).json()
        key_headers = {"authorization": f"Bearer {body['key']}"}
        # Every request has a connection of its own, so that each worker has seen the key.
        assert fetch_statuses(server, key_headers) == {200}
        key_address = f"{server.address}/api-keys/{body['key_id']}"
        httpx.delete(key_address, headers=owner, timeout=TIMEOUT_SECONDS).raise_for_status()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while fetch_statuses(server, key_headers) != {401}:
            assert time.monotonic() < deadline, "a worker has not heard that the key is revoked"
            time.sleep(0.2)
        assert server.terminate() == 0
        assert "Traceback" not in server.log_text


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", "--workers", 2, settings={"BAOBAB_BOOTSTRAP_KEY": KEY}) as server:
        server.kill()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while is_answering(server):
            assert time.monotonic() < deadline, "a worker goes on without its parent"
            time.sleep(0.05)


def is_answering(server: ServerProcess) -> bool:
    try:
        return httpx.get(f"{server.address}/health", timeout=TIMEOUT_SECONDS).is_success
    except httpx.TransportError:
        return False


def fetch_statuses(server: ServerProcess, headers: dict[str, str]) -> set[int]:
    with httpx.Client(headers={**headers, "connection": "close"}, timeout=TIMEOUT_SECONDS) as client:
        return {client.get(f"{server.address}/apps").status_code for _ in range(40)}


def test_a_taken_port_is_one_line_that_says_what_to_do(first_start: ServerProcess, tmp_path: Path) -> None:
    port = urlsplit(first_start.address).port
    process = run_baobab("serve", "--port", port, "--data", tmp_path / "data")
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1
    assert str(port) in process.stderr
    assert "BAOBAB_PORT" in process.stderr


def test_the_first_searches_of_a_process_find_what_later_ones_find(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", settings={"BAOBAB_BOOTSTRAP_KEY": KEY}) as server:
        with ThreadPoolExecutor(4) as pool:
            first_answers = list(pool.map(_search_tools, [server.address] * 4))
        # By words alone, which need not be read by a model first, it would be `substrate_set_yolo`.
        assert [names[0] for names in first_answers] == ["apps_init"] * 4
        assert first_answers == [_search_tools(server.address)] * 4


def _search_tools(address: str) -> list[str]:
    arguments = {"query": "set up a project for my todo list"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    headers = {"authorization": f"Bearer {KEY}", "accept": "application/json, text/event-stream"}
    parameters = {"name": "search_tools", "arguments": arguments}
    response = httpx.post(
        f"{address}/mcp", json={**message, "params": parameters}, headers=headers, timeout=TIMEOUT_SECONDS
    )
    text = response.text.partition("data: ")[2] if "event-stream" in response.headers["content-type"] else response.text
    return [tool["name"] for tool in json.loads(json.loads(text)["result"]["content"][0]["text"])["tools"]]
