"""The sdist, and the wheel that is built from it, hold the tree and nothing else."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("http", "mcp_server", "runtime", "storage", "tools")
KINDS = {
    ".css",
    ".html",
    ".js",
    ".json",
    ".lua",
    ".mako",
    ".md",
    ".monty",
    ".mp4",
    ".png",
    ".py",
    ".svg",
    ".toml",
    ".ts",
    ".typed",
    "",
}


def list_package_files() -> set[str]:
    """The package's files by their names in a wheel."""
    package_files = {f"baobab/{path.name}" for path in (ROOT / "src" / "baobab").iterdir() if path.is_file()}
    package_files |= {f"baobab/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    for folder in (ROOT / "src" / "baobab" / "cli", *(ROOT / layer for layer in LAYERS)):
        files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        package_files |= {f"baobab/{folder.name}/{path.relative_to(folder)}" for path in files}
    return package_files


@pytest.fixture(scope="module")
def dist_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist_folder: Path) -> Path:
    (file,) = dist_folder.glob("*.whl")
    return file


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert len(names) == len(set(names))
    assert set(names) == list_package_files()
    assert {Path(name).suffix for name in names} <= KINDS


def test_the_wheel_carries_what_is_not_python(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "baobab/py.typed",
        "baobab/docs/graph-spec.md",
        "baobab/http/pages/docs.html",
        "baobab/storage/migrations/script.py.mako",
        "baobab/storage/migrations/versions/0001_first_tables.py",
    } <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_sdist_holds_the_sources_and_no_links(dist_folder: Path) -> None:
    (sdist,) = dist_folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = {member.name.partition("/")[2] for member in members}
    package = {name.removeprefix("baobab/") for name in list_package_files()}
    assert {name if name.partition("/")[0] in (*LAYERS, "docs") else f"src/baobab/{name}" for name in package} <= names
    assert {"LICENSE", "Makefile", "README.md", "docs/index.md", "llms.txt", "requirements.lock"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "data/", "dist/"))]


def test_the_installed_wheel_runs_without_the_sources(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check", "install",
         "--no-deps", "--no-index", str(wheel)],
        check=True,
    )  # fmt: skip
    # The dependencies are those of this environment; its own editable install of baobab comes after the wheel's.
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(*command: str) -> str:
        environment = {"PATH": os.environ["PATH"], "BAOBAB_DATA": str(tmp_path / "data")}
        process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        return process.stdout

    where = run(str(python), "-c", "import baobab.http.rest_app as f, baobab.cli as c; print(f.__file__, c.__file__)")
    assert all(path.startswith(str(site)) for path in where.split())
    assert "kv_put" in run(str(home / "bin" / "baobab"), "tools")
    assert "Applied 0001" in run(str(home / "bin" / "baobab"), "migrate")
    pages = run(str(python), "-c", "from baobab.http.page_routes import docs_routes; print(len(docs_routes()))")
    assert pages == "4\n"
    guides = run(str(python), "-c", "from baobab.tools.core.guides import guides; print(*guides())")
    assert "graph-spec" in guides.split()
