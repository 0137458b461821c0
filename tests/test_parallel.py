"""A run of tests in several processes is judged as one in a single process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.server_process import TIMEOUT_SECONDS

ROOT = Path(__file__).parent.parent
CONFTEST = """
    import contextlib
    import os

    import pytest

    from tests.parallel import ForkedRun
    from tests.process_end import run_at_end

    @contextlib.contextmanager
    def open_something():
        try:
            yield
        finally:
            print("what is undone at the end")

    def load():
        os.environ["LOADED"] = "once"
        until_the_end = contextlib.ExitStack()
        until_the_end.enter_context(open_something())
        run_at_end(until_the_end.close)

    def pytest_configure(config):
        config.pluginmanager.register(ForkedRun(2, load))

    @pytest.fixture(scope="session", autouse=True)
    def session(tmp_path_factory):
        yield
        (tmp_path_factory.getbasetemp() / "ended").touch()
"""
GOOD = """
    import os
    import warnings

    def test_one(tmp_path):
        assert os.environ["LOADED"] == "once"
        print("what a good test prints")

    def test_two():
        warnings.warn("It is late.")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(_dedent(CONFTEST))
    for name in ("a", "b", "c"):
        (tests / f"test_{name}.py").write_text(_dedent(GOOD))
    return tests


def _dedent(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs them in a session of their own: this one has threads, and is not forked."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--rootdir",
        str(folder.parent),
        "-c",
        os.devnull,
        "-p",
        "no:cacheprovider",
    ]
    command += ["-p", "no:randomly", "--basetemp", str(folder.parent / "temporary"), *options, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def test_all_tests_run_and_their_warnings_are_shown(folder: Path) -> None:
    ended = run_tests(folder)
    assert ended.returncode == 0, ended.stdout
    assert "6 passed, 3 warnings" in ended.stdout
    assert "UserWarning: It is late." in ended.stdout
    assert "what a good test prints" not in ended.stdout
    assert ended.stdout.count("what is undone at the end") == 1


def test_each_process_ends_its_session_once(folder: Path) -> None:
    run_tests(folder)
    assert len(list((folder.parent / "temporary").glob("*/ended"))) == 2


def test_a_failure_is_shown_with_what_the_test_printed(folder: Path) -> None:
    (folder / "test_b.py").write_text('def test_it():\n    print("what it printed")\n    assert 1 + 1 == 3\n')
    ended = run_tests(folder)
    assert ended.returncode == 1
    assert "1 failed, 4 passed" in ended.stdout
    assert "what it printed" in ended.stdout
    assert "assert (1 + 1) == 3" in ended.stdout


@pytest.mark.parametrize(("way", "code"), [("os.kill(os.getpid(), 9)", -9), ("os._exit(0)", 0)])
@pytest.mark.parametrize("after", ["", "\ndef test_after():\n    pass\n"])
def test_a_test_that_ends_its_process_fails_by_its_name_and_the_others_run(
    folder: Path, way: str, code: int, after: str
) -> None:
    (folder / "test_b.py").write_text(f"import os\n\ndef test_dies():\n    {way}\n{after}")
    ended = run_tests(folder)
    assert ended.returncode == 1
    assert f"1 failed, {5 if after else 4} passed" in ended.stdout
    assert f"The test ended its process: {code}." in ended.stdout
    assert "test_b.py::test_dies\n" in ended.stdout


def test_a_run_that_stops_at_the_first_failure_ends_all_its_processes(folder: Path) -> None:
    (folder / "test_a.py").write_text("def test_it():\n    assert False\n")
    slow = (
        "import time\nimport pytest\n\n@pytest.mark.parametrize('n', range(1000))\ndef test_it(n):\n    time.sleep(1)\n"
    )
    (folder / "test_b.py").write_text(slow)
    ended = run_tests(folder, "--exitfirst")
    assert ended.returncode == 1
    assert "1 failed" in ended.stdout
    assert "stopping after 1 failures" in ended.stdout


def test_a_file_that_cannot_be_imported_is_an_error(folder: Path) -> None:
    (folder / "test_b.py").write_text("raise ValueError('not today')\n")
    ended = run_tests(folder)
    assert ended.returncode == 2
    assert "not today" in ended.stdout
