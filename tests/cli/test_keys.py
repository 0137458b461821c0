"""`baobab keys` on the data folder of a running server."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_baobab, run_server

NOTICED = 2.0
"""Seconds after which a running server must have noticed."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with run_server(data) as process:
        yield process


def read_output(*arguments: object) -> str:
    process = run_baobab(*arguments)
    assert process.returncode == 0, process.stderr
    return process.stdout


def fetch_status(server: ServerProcess, key: str) -> int:
    return httpx.get(
        f"{server.address}/apps", headers={"authorization": f"Bearer {key}"}, timeout=TIMEOUT_SECONDS
    ).status_code


def find_key_id(data: Path, name: str) -> str:
    return next(
        line.split()[0] for line in read_output("keys", "list", "--data", data).splitlines() if line.endswith(name)
    )


def test_a_key_works_at_once_and_stops_soon_after_it_was_revoked(data: Path, server: ServerProcess) -> None:
    key = read_output("keys", "create", "agent", "--data", data).strip()
    assert fetch_status(server, key) == 200
    output = read_output("keys", "list", "--data", data)
    assert key[:12] in output
    assert key not in output
    assert read_output("keys", "revoke", find_key_id(data, "agent"), "--data", data) == "Revoked.\n"
    time.sleep(NOTICED)
    assert fetch_status(server, key) == 401
    assert fetch_status(server, server.key) == 200


def test_after_a_rotation_and_a_restart_everything_still_opens(data: Path) -> None:
    password = {"email": "ada@example.com", "password": "correct Horse 7!"}
    with run_server(data) as server:
        key = server.key
        # An app's keys, and the platform's signing key, are what is sealed.
        app = httpx.post(
            f"{server.address}/init",
            json={"name": "todo"},
            headers={"authorization": f"Bearer {key}"},
            timeout=TIMEOUT_SECONDS,
        )
        httpx.post(
            f"{server.address}/platform/signup", json={**password, "name": "Ada"}, timeout=TIMEOUT_SECONDS
        ).raise_for_status()
        token = httpx.post(f"{server.address}/platform/login", json=password, timeout=TIMEOUT_SECONDS).json()["token"]
        before = (data / "secret.key").read_text()
        assert read_output("keys", "rotate-secret", "--data", data).startswith("Encrypted ")
        assert fetch_status(server, token) == 200, "a server that runs keeps working with the old key"
        server.terminate()
    after = (data / "secret.key").read_text()
    assert after.endswith(before)
    # The old key is no longer needed: everything has been sealed anew.
    (data / "secret.key").write_text(after.removesuffix(before))
    with run_server(data) as server:
        assert fetch_status(server, key) == 200
        assert fetch_status(server, token) == 200
        assert httpx.post(f"{server.address}/platform/login", json=password, timeout=TIMEOUT_SECONDS).status_code == 200
        response = httpx.post(
            f"{server.address}/v1/{app.json()['app_id']}/kv/_rotate_key",
            headers={"authorization": f"Bearer {key}"},
            timeout=TIMEOUT_SECONDS,
        )
        assert response.status_code == 200


def test_revoking_what_does_not_exist_is_one_line(data: Path) -> None:
    read_output("init", "--data", data)
    process = run_baobab("keys", "revoke", "00000000-0000-0000-0000-000000000000", "--data", data)
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1


def test_keys_of_an_empty_installation_are_one_line(data: Path) -> None:
    process = run_baobab("keys", "list", "--data", data)
    assert process.returncode == 1
    assert "baobab init" in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_a_password_set_on_the_folder_signs_its_account_in(data: Path, server: ServerProcess) -> None:
    output = read_output("password", "--data", data, "--password", "correct Horse 7!")
    assert "owner@localhost" in output
    body = {"email": "owner@localhost", "password": "correct Horse 7!"}
    assert httpx.post(f"{server.address}/platform/login", json=body, timeout=TIMEOUT_SECONDS).status_code == 200
    assert (
        run_baobab("password", "nobody@example.com", "--data", data, "--password", "correct Horse 7!").returncode == 1
    )
