"""The tests run in a random order that can be repeated, and draw the same examples in each."""

import importlib.util
import itertools
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
FILES = ("tests/test_settings.py", "tests/packaging/test_locks.py")


def list_tests(*options: str) -> tuple[list[str], list[str]]:
    """The tests of two files in the order in which they would run, and the seeds that are printed."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *options]
    done = subprocess.run([*command, *FILES], cwd=ROOT, capture_output=True, text=True, check=True)
    return re.findall(r"^tests/\S+::.*", done.stdout, re.MULTILINE), re.findall(r"--randomly-seed=(\d+)", done.stdout)


def test_each_run_has_an_order_of_its_own_and_prints_the_seed_that_repeats_it() -> None:
    in_files, _ = list_tests("--randomly-dont-reorganize")
    shuffled, (seed,) = list_tests()
    assert shuffled != in_files
    assert sorted(shuffled) == sorted(in_files)
    assert list_tests(f"--randomly-seed={seed}") == (shuffled, [seed])
    files = [file for file, _ in itertools.groupby(test.partition("::")[0] for test in shuffled)]
    assert sorted(files) == sorted(FILES)


def draw_examples() -> list[object]:
    drawn: list[object] = []

    @hypothesis.settings(max_examples=200)
    @hypothesis.given(values=st.lists(st.text() | st.integers()))
    def draw(values: list[object]) -> None:
        drawn.extend(values)

    draw()
    return drawn


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
