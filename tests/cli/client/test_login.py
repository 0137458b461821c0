"""`baobab login`: by OAuth with a person who decides on the server's page, or by a key."""

import json
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.cli.client.conftest import HELLO, Terminal
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_baobab

PASSWORD = "correct Horse 7!"


@pytest.fixture(scope="module")
def person(server: ServerProcess) -> dict[str, str]:
    """The headers of the server's owner, signed in with a password."""
    data = server.log.parent / "data"
    assert run_baobab("password", "--password", PASSWORD, "--data", data).returncode == 0
    body = {"email": "owner@localhost", "password": PASSWORD}
    token = httpx.post(f"{server.address}/platform/login", json=body).json()["token"]
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def stranger(terminal: Terminal) -> Terminal:
    """A terminal without any variable."""
    for name in ("BAOBAB_URL", "BAOBAB_KEY", "BAOBAB_APP"):
        del terminal.environment[name]
    return terminal


@contextmanager
def begin_login(terminal: Terminal) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the command, and yields it with the link that it printed."""
    with terminal.start("login", terminal.server.address, "--no-browser") as process:
        assert process.stdout is not None
        link = ""
        while not link:
            line = process.stdout.readline()
            assert line, "the command ended"
            link = line.strip() if line.strip().startswith("http") else ""
        yield process, link


def decide(person: dict[str, str], link: str, **decision: Any) -> str:
    """Decides as a person on the page, and returns where the browser is led."""
    page = httpx.get(link).headers["location"]
    request = parse_qs(urlsplit(page).query)["request"][0]
    address = "{0.scheme}://{0.netloc}".format(urlsplit(link))
    body = {"request": request, "decision": "approve", **decision}
    answer = httpx.post(f"{address}/oauth/decision", json=body, headers=person)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["redirect_to"])


def log_in(terminal: Terminal, person: dict[str, str], **decision: Any) -> str:
    """Logs in by OAuth, and returns what the command printed at its end."""
    with begin_login(terminal) as (process, link):
        assert httpx.get(decide(person, link, **decision)).status_code == 200
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, output
    return output


def find_file(terminal: Terminal) -> Path:
    return Path(terminal.environment["XDG_CONFIG_HOME"], "baobab", "logins.json")


def read_login(terminal: Terminal) -> dict[str, Any]:
    login: dict[str, Any] = json.loads(find_file(terminal).read_text())["servers"][terminal.server.address]
    return login


def change_login(terminal: Terminal, **changes: Any) -> None:
    content = json.loads(find_file(terminal).read_text())
    content["servers"][terminal.server.address] |= changes
    find_file(terminal).write_text(json.dumps(content))


def test_a_person_gives_access_and_takes_it_away(stranger: Terminal, person: dict[str, str]) -> None:
    output = log_in(stranger, person, approval="none")
    assert "as owner@localhost" in output
    file = find_file(stranger)
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    source = stranger.write("hello.ts", HELLO)
    stranger.run("functions", "deploy", source, "--app", stranger.app)
    programs = httpx.get(f"{stranger.server.address}/oauth/programs", headers=person).json()["programs"]
    assert any(each["client_name"].startswith("Baobab command line on ") for each in programs)
    token = read_login(stranger)["access_token"]
    assert "Logged out" in stranger.run("logout")
    answer = httpx.get(f"{stranger.server.address}/apps", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert "baobab login URL" in stranger.run("apps", code=1)


def test_access_has_the_limits_that_the_person_chose(stranger: Terminal, person: dict[str, str]) -> None:
    # The page's own choice: destructive calls wait for a person, so it hands out no rights.
    log_in(stranger, person)
    stranger.run("functions", "list", "--app", stranger.app)
    output = stranger.run("functions", "deploy", stranger.write("hello.ts", HELLO), "--app", stranger.app, code=1)
    assert "A key with limits cannot call functions_deploy" in output


def test_an_access_token_that_expires_is_exchanged_once_by_commands_at_the_same_time(
    stranger: Terminal, person: dict[str, str]
) -> None:
    log_in(stranger, person, approval="none")
    before = read_login(stranger)
    change_login(stranger, expires_at=time.time())
    processes = [stranger.start("apps") for _ in range(3)]
    for process in processes:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, output
    after = read_login(stranger)
    assert after["access_token"] != before["access_token"]
    assert after["expires_at"] > time.time() + 3000
    stranger.run("apps")


def test_a_denial_stores_nothing(stranger: Terminal, person: dict[str, str]) -> None:
    with begin_login(stranger) as (process, link):
        httpx.get(decide(person, link, decision="deny"))
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 1
    assert "No access was given" in output
    assert not find_file(stranger).exists()


def test_a_page_that_calls_the_port_without_the_state_gives_no_access(
    stranger: Terminal, person: dict[str, str]
) -> None:
    with begin_login(stranger) as (process, link):
        redirect = parse_qs(urlsplit(link).query)["redirect_uri"][0]
        for guess in ("?code=stolen", "?code=stolen&state=guess", "x?code=stolen"):
            assert httpx.get(redirect + guess).status_code == 404
        httpx.get(decide(person, link, approval="none"))
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, output


def test_a_key_is_read_from_a_pipe_and_goes_only_to_its_server(stranger: Terminal) -> None:
    key, address = stranger.server.key, stranger.server.address
    output = stranger.run("login", address, "--key", piped=f"{key}\n")
    assert key not in output
    assert read_login(stranger) == {"key": key}
    stranger.run("functions", "list", "--app", stranger.app)
    other = address.replace("127.0.0.1", "localhost")
    assert f"There is no credential for {other}" in stranger.run("apps", code=1, BAOBAB_URL=other)
    assert "stays valid" in stranger.run("logout", address)
    assert "no login" in stranger.run("logout", code=1)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://127.0.0.1:1", "does not answer"),
        ("ftp://shop.example", "no address of a server"),
        ("https://shop.example/v1/app", "the address of a page"),
        ("https://ada:secret@shop.example", "no address of a server"),
    ],
)
def test_an_address_that_is_no_server_is_refused(stranger: Terminal, address: str, reason: str) -> None:
    assert reason in stranger.run("login", address, "--key", piped="bb_sk_x", code=1)


def test_a_key_that_the_server_does_not_know_is_not_stored(stranger: Terminal) -> None:
    output = stranger.run("login", stranger.server.address, "--key", piped="bb_sk_" + "X" * 40, code=1)
    assert re.search("key|credential", output)
    assert not find_file(stranger).exists()


def test_a_key_without_an_address_is_sent_nowhere(stranger: Terminal) -> None:
    assert "BAOBAB_URL is not" in stranger.run("apps", code=1, BAOBAB_KEY="bb_sk_x")


def test_a_damaged_file_is_named(stranger: Terminal) -> None:
    file = find_file(stranger)
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert str(file) in stranger.run("apps", code=1)


def test_the_variables_of_clients_are_no_settings_of_the_server(stranger: Terminal) -> None:
    variables: dict[str, Any] = {"BAOBAB_URL": "https://shop.example", "BAOBAB_KEY": "bb_sk_x", "BAOBAB_APP": "shop"}
    assert "claude-code" in stranger.run("connect", **variables)
