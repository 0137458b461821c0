"""The rooms at the top: importable as baobab.<room>, and in nobody's way."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def imported_from(module: str, folder: Path) -> Path:
    """The file that an interpreter started in a folder imports."""
    script = f"import {module}; print({module}.__file__)"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def test_http_has_no_init_file() -> None:
    """With one it would hide the standard library's http from every Python started in the repository's root."""
    assert not (ROOT / "http" / "__init__.py").exists()


def test_the_standard_library_wins_in_the_repository_root(tmp_path: Path) -> None:
    assert imported_from("http.client", ROOT) == imported_from("http.client", tmp_path)


@pytest.mark.parametrize("room", ["http", "mcp_server", "runtime", "storage", "tools"])
def test_a_link_leads_to_each_room(room: str) -> None:
    link = ROOT / "src" / "baobab" / room
    assert link.is_symlink()
    assert link.readlink() == Path("../..", room)
    assert link.is_dir()


def test_tools_are_folders_and_a_list_of_them() -> None:
    assert [path.name for path in (ROOT / "tools").glob("*.py")] == ["__init__.py"]


def test_the_tables_of_a_domain_stand_in_its_file_of_tables() -> None:
    domains = [path for path in (ROOT / "tools").iterdir() if path.is_dir() and path.name != "core"]
    defining = {path for domain in domains for path in domain.rglob("*.py") if " = Table(" in path.read_text()}
    assert defining
    assert {path.name for path in defining} == {"tables.py"}
