"""`baobab plan`: which plan an organisation has."""

import contextlib
import json
import sqlite3
from pathlib import Path

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, run_baobab, run_server

ADA = {"email": "ada@example.com", "password": "correct Horse 7!"}


def read_output(data: Path, *arguments: str) -> list[str]:
    process = run_baobab("plan", *arguments, "--data", data)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_a_running_server_gives_an_organisation_the_room_of_its_new_plan_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with run_server(data) as server, httpx.Client(base_url=server.address, timeout=TIMEOUT_SECONDS) as client:
        assert client.post("/platform/signup", json={**ADA, "name": "Ada"}).status_code == 201
        token = client.post("/platform/login", json=ADA).json()["token"]
        ada = {"authorization": f"Bearer {token}"}

        def make(name: str) -> int:
            return client.post("/init", json={"name": name}, headers=ada).status_code

        assert [make("one"), make("two")] == [201, 403]
        organisation, plan = read_output(data, ADA["email"])
        assert plan.startswith("plan playground: 1 apps")
        for _ in range(2):
            assert read_output(data, ADA["email"], "launch")[1].startswith("plan launch: 3 apps")
        assert [make("two"), make("three"), make("four")] == [201, 201, 403]
    with contextlib.closing(sqlite3.connect(data / "baobab.db")) as connection:
        query = "SELECT organisation_id, actor_type, event_data FROM audit_logs WHERE event_type = 'organization.plan'"
        ((whose, actor, event_json),) = connection.execute(query).fetchall()
    assert (f"organisation {whose}", actor) == (organisation, "operator")
    assert json.loads(event_json) == {"door": "cli", "plan": "launch", "before": "playground"}


@pytest.mark.parametrize("arguments", [("nobody@example.com",), ("nobody", "launch"), ("owner@localhost", "gold")])
def test_what_there_is_not_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    data = tmp_path / "data"
    assert run_baobab("init", "--data", data).returncode == 0
    process = run_baobab("plan", *arguments, "--data", data)
    assert process.returncode in (1, 2)
    assert process.stderr.splitlines()[-1].startswith("Error: ")
