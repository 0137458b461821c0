"""`make bench`: its sections run, a wrong name is an error, and figures go into the page of their section."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.pages import PAGE, list_places, replace_figures
from tests.bench.sections import SECTIONS, UnknownSectionError, measure
from tests.bench.size import SMOKE

pytestmark = pytest.mark.long_file

_SMOKED = ("start", "engine", "rest", "mcp", "bombs")
"""Sections that a smoke runs here, as small as they can be. The others need database servers, peers or minutes."""


def test_an_unknown_section_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownSectionError) as error:
        list(measure(["rest", "nonsense"]))
    assert str(error.value).startswith("unknown: nonsense. The sections are: start, engine, rest, ")
    assert all(name in str(error.value) for name in SECTIONS)


def test_an_unknown_option_is_an_error() -> None:
    command = [sys.executable, "-m", "tests.bench", "--writes"]
    outcome = subprocess.run(command, cwd=PAGE.parents[1], capture_output=True, text=True, timeout=120, check=False)
    assert outcome.returncode == 1
    assert "--write" in outcome.stderr


def test_every_section_has_a_place_on_the_page_of_speed() -> None:
    assert sorted(list_places(PAGE.read_text())) == sorted(SECTIONS)


def test_figures_replace_those_of_their_section_only() -> None:
    page = "# Speed\n{}text\n{}".format(
        *(f"<!-- figures: {name} -->\n| old |\n<!-- end of figures -->\n" for name in ("rest", "mcp"))
    )
    new_page = replace_figures(page, {"rest": ["", "PUT 100 us  ", "GET 43 us", ""]}, "27 November 2026")
    assert new_page == page.replace(
        "rest -->\n| old |\n", "rest -->\n```text\n27 November 2026\n\nPUT 100 us\nGET 43 us\n```\n"
    )
    assert replace_figures(new_page, {"rest": ["new"]}, "today").count("```") == 2
    with pytest.raises(KeyError):
        replace_figures(page, {"nonsense": ["new"]}, "today")


@pytest.mark.parametrize("name", _SMOKED)
def test_a_section_runs(name: str) -> None:
    command = [sys.executable, "-m", "tests.bench", SMOKE, name]
    outcome = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert len(outcome.stdout.splitlines()) > 2
