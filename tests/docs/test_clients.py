"""The matrix of clients is whole: what is declared is locked, has a script, and was run at the version it names."""

import json
import re

import pytest

from tests.clients.matrix import CHECKS, NODE_FOLDERS, Client, load_clients, load_results
from tests.clients.page import read_lines

CLIENTS = load_clients()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_locked_at_the_version_that_it_names(client: Client) -> None:
    if client.language == "python":
        lock = client.lock.read_text()
        locked_versions = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", lock, re.MULTILINE))
    else:
        lock = (NODE_FOLDERS[client.weight] / "package-lock.json").read_text()
        locked_versions = json.loads(lock)["packages"][""]["dependencies"]
    assert {package: locked_versions[package] for package in client.packages} == dict(client.packages)
    assert "://" not in re.sub(r'"(url|funding|license)": "[^"]*"', "", lock), "a lock names no address"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_has_a_script_and_shows_known_checks(client: Client) -> None:
    assert client.script.exists()
    assert {*client.shows, *client.provider_shows} <= set(CHECKS)
    assert bool(client.provider_shows) == bool(client.wire)
    assert set(client.faults) <= set(client.shows)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_was_run_as_it_is_declared(client: Client) -> None:
    checks = {
        model: {check: check not in client.faults for check in client.checks_on(model)} for model in client.models
    }
    expected_result = {
        "version": client.version,
        "checks": checks.pop("built-in"),
        **({"provider": checks} if checks else {}),
    }
    result = load_results()[client.name]
    assert result["date"]
    assert result == {**expected_result, "date": result["date"]}, "run `make clients`, then `make docs`"


def test_the_lines_to_paste_are_those_of_the_script_at_the_readers_own_address_with_their_own_key() -> None:
    (client,) = (client for client in CLIENTS if client.name == "openai")
    assert read_lines(client).splitlines() == [
        "```python",
        "from openai import OpenAI",
        "",
        'client = OpenAI(base_url="http://127.0.0.1:8000/v1/APP", api_key="bb_sk_...")',
        "```",
    ]
