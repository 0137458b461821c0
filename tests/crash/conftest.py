"""Chooses which tests of this folder are collected for which backend."""

from pathlib import Path

import pytest

# These start the servers that they break by themselves: another backend would only run them a second time.
_BRING_THEIR_SERVERS = {
    "test_restart_postgres.py",
    "test_restart_postgres_agents.py",
    "test_restart_postgres_jobs.py",
    "test_restart_valkey.py",
    "test_full_disk.py",
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("backend") != "sqlite" and collection_path.name in _BRING_THEIR_SERVERS:
        return True
    return None
