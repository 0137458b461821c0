"""`baobab.tools.core` offers what most domains use."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from baobab.tools import core

TOOLS = Path(__file__).parents[3] / "tools"
FRAMEWORK = "baobab.tools.core"
FEWEST_DOMAINS = 5
"""A name that fewer domains use is imported from its module."""


def find_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The modules and names that a file imports, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def list_files_of_domains() -> list[Path]:
    files = [path for path in TOOLS.glob("*/**/*.py") if not path.is_relative_to(TOOLS / "core")]
    assert len(files) > 300
    return files


def list_offered() -> set[tuple[str, str]]:
    """The modules and names that the framework offers, as the type checker sees them."""
    tree = ast.parse((TOOLS / "core" / "__init__.py").read_text())
    return {(module, name) for module, name in find_imports(tree) if module.startswith(f"{FRAMEWORK}.")}


def test_each_offered_name_is_that_of_its_module() -> None:
    assert len(list_offered()) > 30
    for module, name in list_offered():
        assert getattr(core, name) is getattr(sys.modules[module], name), name
    assert {name for _, name in list_offered()} == set(core._MODULES)


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'AppID'"):
        getattr(core, "AppID")  # noqa: B009 - the type checker would refuse it, too


def test_domains_import_the_offered_names_from_the_framework_itself() -> None:
    names = list_offered()
    past_it = [
        (str(path), name)
        for path in list_files_of_domains()
        for module, name in find_imports(ast.parse(path.read_text()))
        if (module, name) in names
    ]
    assert past_it == []


def test_only_what_many_domains_use_is_offered() -> None:
    users: dict[str, set[str]] = {name: set() for _, name in list_offered()}
    for path in list_files_of_domains():
        for module, name in find_imports(ast.parse(path.read_text())):
            if module == FRAMEWORK and name in users:
                users[name].add(path.relative_to(TOOLS).parts[0])
    assert {name for name, domains in users.items() if len(domains) < FEWEST_DOMAINS} == set()


def test_the_command_line_starts_without_the_framework() -> None:
    script = "import sys, baobab.cli; print('baobab.tools.core.call' in sys.modules, 'sqlalchemy' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "False"]
