"""`baobab credits`: what the operator gives organisations."""

import contextlib
import json
import sqlite3
import subprocess
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from baobab.cli import main
from tests.cli.server_process import TIMEOUT_SECONDS, run_baobab, run_server

OWNER = "owner@localhost"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    assert run_baobab("init", "--data", folder, settings={"BAOBAB_PLAN": "launch"}).returncode == 0
    return folder


def run_credits(data: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_baobab("credits", *arguments, "--data", data)


def read_output(data: Path, *arguments: object) -> list[str]:
    process = run_credits(data, *arguments)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_an_organisation_has_what_its_plan_gives(data: Path) -> None:
    first, *rest = read_output(data, "show", OWNER)
    assert rest == [
        "allowance 5.00 a month, 5.00 left",
        "topped up 0.00 left",
        "floor 0.00",
        "reserved 0.00",
        "available 5.00",
    ]
    by_id = read_output(data, "show", first.removeprefix("organisation "))
    assert by_id == [first, *rest] == read_output(data, "show", "Owner@LocalHost")


def test_a_payment_is_topped_up_once(data: Path) -> None:
    for _ in range(2):
        assert "topped up 12.000000001 left" in read_output(
            data, "top-up", OWNER, "12.000000001", "--reference", "invoice 1"
        )
    assert "available 18.000000001" in read_output(data, "top-up", OWNER, "1", "--reference", "invoice 2")
    other = run_credits(data, "top-up", OWNER, "13", "--reference", "invoice 1")
    assert other.returncode == 1
    assert len(other.stderr.splitlines()) == 1
    assert "available 18.000000001" in read_output(data, "show", OWNER)


def test_terms_of_its_own_are_set_and_taken_back(data: Path) -> None:
    lines = read_output(data, "terms", OWNER, "--allowance", "7.5", "--floor", "-10")
    assert {"allowance 7.50 a month, 7.50 left", "floor -10.00", "available 17.50"} <= set(lines)
    assert {"allowance 5.00 a month, 5.00 left", "floor -1.00"} <= set(
        read_output(data, "terms", OWNER, "--floor", "-1")
    )
    assert {"allowance 5.00 a month, 5.00 left", "floor 0.00"} <= set(read_output(data, "terms", OWNER))


def test_a_running_server_knows_at_once(data: Path) -> None:
    with run_server(data) as server:
        # The folder has its first account, and its key was told then; another one is as good.
        key = run_baobab("keys", "create", "agent", "--data", data).stdout.strip()
        assert run_credits(data, "top-up", OWNER, "2", "--reference", "invoice 1").returncode == 0
        headers = {"authorization": f"Bearer {key}"}
        billing = httpx.get(f"{server.address}/dashboard/billing", headers=headers, timeout=TIMEOUT_SECONDS).json()
    assert (billing["credits"]["topup_usd"], billing["credits"]["available_usd"]) == (2.0, 7.0)


def test_what_the_operator_gives_is_written_down_as_the_operators(data: Path) -> None:
    for _ in range(2):
        read_output(data, "top-up", OWNER, "12.5", "--reference", "invoice 1")
    assert run_credits(data, "top-up", OWNER, "13", "--reference", "invoice 1").returncode == 1
    organisation = read_output(data, "terms", OWNER, "--floor", "-10")[0].removeprefix("organisation ")
    columns = "organisation_id, actor_type, actor_id, event_type, resource_id, success, event_data"
    with contextlib.closing(sqlite3.connect(data / "baobab.db")) as connection:
        query = f"SELECT {columns} FROM audit_logs WHERE event_type LIKE 'credits.%' ORDER BY created_at"  # noqa: S608
        *rows, (*last, data_) = connection.execute(query).fetchall()
    # The same payment twice is one top-up.
    ((*first, topped_up),) = rows
    operator = [organisation, "operator", None]
    assert first == [*operator, "credits.top_up", "invoice 1", 1]
    assert json.loads(topped_up) == {"door": "cli", "amount_usd": "12.50"}
    assert last == [*operator, "credits.terms", organisation, 1]
    assert json.loads(data_) == {"door": "cli", "allowance_usd": None, "floor_usd": "-10.00"}


def test_what_cannot_be_written_down_is_not_given(data: Path) -> None:
    before = read_output(data, "show", OWNER)
    with contextlib.closing(sqlite3.connect(data / "baobab.db")) as connection:
        connection.execute("ALTER TABLE audit_logs RENAME TO somewhere_else")
    for command in (("top-up", OWNER, "1", "--reference", "x"), ("terms", OWNER, "--floor", "-1")):
        assert run_credits(data, *command).returncode == 1
    assert read_output(data, "show", OWNER) == before


def test_an_organisation_that_is_not_there_is_one_line(data: Path) -> None:
    for name in ("nobody@example.com", "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", "nobody"):
        for command in (("show", name), ("top-up", name, "1", "--reference", "x"), ("terms", name)):
            process = run_credits(data, *command)
            assert (process.returncode, process.stdout) == (1, "")
            (line,) = process.stderr.splitlines()
            assert "no such organisation" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("top-up", OWNER, "0", "--reference", "x"),
        ("top-up", OWNER, "1.0000000001", "--reference", "x"),
        ("top-up", OWNER, "1e3", "--reference", "x"),
        ("top-up", OWNER, "2000000", "--reference", "x"),
        ("top-up", OWNER, "1", "--reference", ""),
        ("top-up", OWNER, "1", "--reference", "x" * 201),
        ("top-up", OWNER, "1"),
        ("terms", OWNER, "--floor", "10"),
        ("terms", OWNER, "--allowance", "-1"),
        ("show", "two\nlines"),
    ],
    ids=str,
)
def test_what_is_no_amount_or_reference_changes_nothing_and_is_no_traceback(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["credits", *arguments])
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert "Error: " in result.stderr.splitlines()[-1]
