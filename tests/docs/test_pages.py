"""The pages say what the code says, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from baobab.tools import toolsets
from baobab.tools.core.registry import Registry
from tests.docs.generate import PAGES, ROOT

WRITTEN = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES)
def test_a_generated_page_has_not_drifted(path: str) -> None:
    assert (ROOT / path).read_text() == PAGES[path](Registry(toolsets())), "run `make docs`"


@pytest.mark.parametrize("path", PAGES)
def test_a_generated_page_names_operations_by_their_tools(path: str) -> None:
    assert not re.findall(r"\bop:[a-z]\w*", (ROOT / path).read_text())


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_tool_setting_and_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    settings, makefile = (ROOT / "docs/settings.md").read_text(), (ROOT / "Makefile").read_text()
    for variable in re.findall(r"BAOBAB_[A-Z_]*[A-Z]", text):
        assert f"`{variable}`" in settings or f"export {variable} " in makefile, variable
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    for target in re.findall(r"`make ([a-z0-9-]+)", text):
        assert target in targets, target


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name
