"""The processes in which the suite runs (tests/forked_workers.py) lose no test."""

import subprocess
import sys
from pathlib import Path

import pytest

_CONFTEST = """
import pytest
from tests.forked_workers import add_option as pytest_addoption
from tests.forked_workers import run_in_workers

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    return run_in_workers(session)

@pytest.fixture(scope="session", autouse=True)
def note_end(tmp_path_factory):
    yield
    (tmp_path_factory.getbasetemp() / "ended").touch()
"""
_PASS = """
def test_passes():
    pass
"""
_PASS_AND_FAIL = """
def test_passes():
    pass

def test_fails():
    print("what it printed")
    assert 1 == 2
"""
_DIE = """
import os

def test_dies():
    os._exit({})

def test_comes_after():
    pass
"""


def _run_pytest(folder: Path, *arguments: str) -> str:
    (folder / "conftest.py").write_text(_CONFTEST)
    plugins = ("asyncio", "hypothesispytest", "langsmith_plugin", "randomly", "schemathesis", "valkey", "anyio")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *(f"-pno:{name}" for name in plugins),
        "--basetemp",
        folder / "temp",
    ]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [*map(str, command), *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_every_test_runs_once_and_failures_are_shown(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / f"test_{name}.py").write_text(_PASS_AND_FAIL)
    output = _run_pytest(tmp_path, "--workers", "2")
    assert "3 failed, 3 passed" in output
    assert output.count("what it printed") == 2 * 3
    assert len([*(tmp_path / "temp").glob("worker-*/ended")]) == 2


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_ends_early_is_a_failure(tmp_path: Path, code: int) -> None:
    (tmp_path / "test_first.py").write_text(_DIE.format(code))
    (tmp_path / "test_second.py").write_text(_PASS_AND_FAIL)
    output = _run_pytest(tmp_path, "--workers", "2")
    assert f"ended with {code}, and 2 tests of its files did not run" in output
    assert "2 failed, 1 passed" in output


def test_the_workers_stop_at_the_first_failure_if_they_are_told_to(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(_PASS_AND_FAIL)
    (tmp_path / "test_second.py").write_text(_PASS)
    output = _run_pytest(tmp_path, "--workers", "2", "-x")
    assert "1 failed" in output
    assert len([*(tmp_path / "temp").glob("worker-*/ended")]) == 2
