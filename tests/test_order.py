"""The tests run in a random order that can be repeated, and draw the same examples in each."""

import importlib.util
import itertools
import re
import sys
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
FILES = ("tests/test_settings.py", "tests/packaging/test_locks.py")


class _Collected:
    """A plugin that notes the tests of a session in their order."""

    tests: tuple[str, ...] = ()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests = tuple(item.nodeid for item in session.items)


def list_tests(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[list[str], list[str]]:
    """The tests of two files in the order in which they would run, and the seeds that are printed."""
    collection = _Collected()
    files = [str(ROOT / file) for file in FILES]
    fixed_options = ["--rootdir", str(ROOT), "--collect-only", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    # A session within this one: to import all that the tests import takes another process some seconds.
    assert pytest.main([*fixed_options, *options, *files], plugins=[collection]) == 0
    return list(collection.tests), re.findall(r"--randomly-seed=(\d+)", capsys.readouterr().out)


def test_each_run_has_an_order_of_its_own_and_prints_the_seed_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_files, _ = list_tests(capsys, "--randomly-dont-reorganize")
    shuffled_tests, (seed,) = list_tests(capsys)
    assert shuffled_tests != in_files
    assert sorted(shuffled_tests) == sorted(in_files)
    assert list_tests(capsys, f"--randomly-seed={seed}") == (shuffled_tests, [seed])
    files = [file for file, _ in itertools.groupby(test.partition("::")[0] for test in shuffled_tests)]
    assert sorted(files) == sorted(FILES)


def draw_examples() -> list[object]:
    examples: list[object] = []

    @hypothesis.settings(max_examples=200)
    @hypothesis.given(values=st.lists(st.text() | st.integers()))
    def draw(values: list[object]) -> None:
        examples.extend(values)

    draw()
    return examples


def load_module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


def test_the_same_examples_are_drawn_when_one_more_module_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = draw_examples()
    (tmp_path / "late.py").write_text(
        f"NUMBERS = {list(range(10**6, 10**6 + 500))}\nWORDS = {list(map(str, range(500)))}\n"
    )
    monkeypatch.setitem(sys.modules, "late", load_module(tmp_path / "late.py"))
    assert draw_examples() == before
