"""The layers at the top: importable as baobab.<layer>, and in nobody's way."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

from baobab.tools import DOMAINS

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"
LAYERS = ("http", "mcp_server", "runtime", "storage", "tools")
LARGEST_FILE_OF_TOOLS = 300
"""Lines of a file that may hold its tools and their schemas together."""
SMALLEST_FILE = 38
LARGEST_FILE_OF_ALL_TOOLS = 350
"""Lines of `tools.py`, which otherwise becomes a folder with one noun a file."""
NAMES_OF_A_DOMAIN = {"access", "clones", "errors", "gauges", "jobs", "schemas", "service", "tables", "tools", "toolset"}
ROOMS_OF_NOUNS = re.compile(r"^baobab\.cli\.|\.tools\.\w+$|\.capabilities\.|\.console\.pages\.|\.documents\.child\.")
"""Folders in which every file is a noun of its own: a command, tools, capabilities, a page, what a reader needs."""
DEFINED = re.compile(r"^(async def|def|class) ", re.MULTILINE)
REGISTRATIONS = {"tool": "tools.py", "job": "jobs.py", "gauge": "gauges.py"}


def find_imported(module: str, folder: Path) -> Path:
    """The file that an interpreter started in a folder imports."""
    script = f"import {module}; print({module}.__file__)"
    process = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return Path(process.stdout.strip())


def test_http_has_no_init_file() -> None:
    """With one it would hide the standard library's http from every Python started in the repository's root."""
    assert not (ROOT / "http" / "__init__.py").exists()


def test_the_standard_library_wins_in_the_repository_root(tmp_path: Path) -> None:
    assert find_imported("http.client", ROOT) == find_imported("http.client", tmp_path)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_link_leads_to_each_layer(layer: str) -> None:
    link = ROOT / "src" / "baobab" / layer
    assert link.is_symlink()
    assert link.readlink() == Path("../..", layer)
    assert link.is_dir()


def test_tools_are_folders_and_a_list_of_them() -> None:
    assert [path.name for path in (ROOT / "tools").glob("*.py")] == ["__init__.py"]


def is_only_imports(text: str) -> bool:
    """Whether a module defines nothing: beside a docstring and a list of names, it imports."""
    # Parsing all modules takes ten seconds.
    if DEFINED.search(text):
        return False
    statements = ast.parse(text).body
    imports = [each for each in statements if isinstance(each, ast.Import | ast.ImportFrom)]
    names = [each for each in statements if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__"]
    has_docstring = bool(statements) and isinstance(statements[0], ast.Expr)
    return bool(imports) and len(imports) + len(names) + has_docstring == len(statements)


def test_no_module_holds_only_imports() -> None:
    files = [file for folder in LAYERS for file in (ROOT / folder).rglob("*.py")]
    files += [file for folder in ("", "cli", "cli/work") for file in (ROOT / "src/baobab" / folder).glob("*.py")]
    assert len(files) > 500
    import_only = [str(file.relative_to(ROOT)) for file in files if is_only_imports(file.read_text())]
    # This one is what the lazy mount imports late, in a thread.
    assert import_only == ["src/baobab/interfaces.py"]


def is_small(module: str) -> bool:
    file = ROOT / "src" / f"{module.replace('.', '/')}.py"
    return file.exists() and len(file.read_text().splitlines()) < SMALLEST_FILE


def test_a_small_module_with_a_single_importer_has_a_name_or_a_room_that_says_why() -> None:
    graph = grimp.build_graph("baobab", "baobab.http", cache_dir=None)
    modules = {module for module in graph.modules if len(graph.find_modules_that_directly_import(module)) == 1}
    assert len(modules) > 100
    small_modules = {module for module in modules if is_small(module) and not ROOMS_OF_NOUNS.search(module)}
    # Its importer is long enough without it.
    expected_modules = {"baobab.http.refusal_log"}
    assert {
        module for module in small_modules if module.rpartition(".")[2] not in NAMES_OF_A_DOMAIN
    } == expected_modules


def test_every_folder_of_tools_is_the_framework_or_a_domain() -> None:
    folders = {path.name for path in TOOLS.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders == {"core", *DOMAINS}


@cache
def parse_tools() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(TOOLS.rglob("*.py"))}


def parse_domains() -> dict[Path, ast.Module]:
    """The files of all domains. The ledger is an engine, although it stands in the folder of billing."""
    exempt = (TOOLS / "__init__.py", TOOLS / "core", TOOLS / "billing" / "ledger")
    return {path: tree for path, tree in parse_tools().items() if not any(path.is_relative_to(each) for each in exempt)}


def find_subclasses(*roots: str) -> Iterator[tuple[Path, str]]:
    """The classes of the domains that derive from one of some names, over any number of steps and files."""
    bases = {
        node.name: {ast.unparse(base).partition("[")[0] for base in node.bases}
        for tree in parse_tools().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    class_names = set(roots)
    while further := {name for name, parents in bases.items() if parents & class_names} - class_names:
        class_names |= further
    for path, tree in parse_domains().items():
        yield from (
            (path, node.name) for node in tree.body if isinstance(node, ast.ClassDef) and node.name in class_names
        )


def is_in(path: Path, name: str) -> bool:
    """Whether a file is the one of this name, such as `tools.py`, or in the folder that it became, `tools/`."""
    return path.name == name or Path(name).stem in path.relative_to(TOOLS).parent.parts[1:]


def is_only_file_of_tools(path: Path) -> bool:
    return path.name == "tools.py" and len(path.read_text().splitlines()) <= LARGEST_FILE_OF_TOOLS


def test_the_tools_of_a_domain_stand_in_a_folder_if_they_are_too_many_for_a_file() -> None:
    files = {path for path in parse_domains() if path.name == "tools.py"}
    assert files
    assert [path for path in files if len(path.read_text().splitlines()) > LARGEST_FILE_OF_ALL_TOOLS] == []


def test_the_tables_of_a_domain_stand_in_its_file_of_tables() -> None:
    defining = {path for path in parse_domains() if " = Table(" in path.read_text()}
    assert defining
    assert {path.name for path in defining} == {"tables.py"}


@pytest.mark.parametrize("kind", REGISTRATIONS)
def test_tools_jobs_and_gauges_of_a_domain_stand_in_the_files_of_these_names(kind: str) -> None:
    registering = {
        path
        for path, tree in parse_domains().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and decorator.func.attr == kind
    }
    assert registering
    assert [path for path in registering if not is_in(path, REGISTRATIONS[kind])] == []


def test_the_errors_of_a_domain_stand_in_its_file_of_errors() -> None:
    errors = list(find_subclasses("BaobabError"))
    assert errors
    assert [(path, name) for path, name in errors if path.name != "errors.py"] == []


def test_the_schemas_of_a_domain_stand_in_its_file_of_schemas_or_beside_its_few_tools() -> None:
    schemas = list(find_subclasses("TypedDict", "BaseModel"))
    assert schemas
    elsewhere = [(path, name) for path, name in schemas if not is_in(path, "schemas.py")]
    assert [(path, name) for path, name in elsewhere if not is_only_file_of_tools(path)] == []


def test_the_access_classes_of_a_domain_stand_in_its_file_of_access() -> None:
    deciding = [
        (path, node.name)
        for path, tree in parse_domains().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(method, ast.AsyncFunctionDef) and method.name == "authorise" for method in node.body)
    ]
    assert deciding
    assert [(path, name) for path, name in deciding if path.name != "access.py"] == []
