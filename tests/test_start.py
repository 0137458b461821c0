"""What a server loads at its start, and what it leaves for those who need it first."""

import subprocess
import sys
from pathlib import Path

import pytest

_LATE = ("langgraph", "langchain_core", "langsmith", "litellm", "numpy", "onnxruntime", "aiohttp", "jinja2", "webauthn")


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("baobab.serving", ("fastapi", "mcp", "mcp_types", *_LATE)),
        ("baobab.serving, baobab.interfaces", _LATE),
    ],
    ids=["before it answers", "behind that"],
)
def test_libraries_of_a_few_tools_are_loaded_when_they_are_first_used(modules: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {modules}; print(*sorted(set({absent!r}) & set(sys.modules)))"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert outcome.stdout.split() == []


def test_a_server_process_of_several_is_created_by_its_name() -> None:
    code = "from uvicorn.importer import import_from_string as find; print(find('baobab.cli.servers:create_server'))"
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=Path.home()
    )
    assert "create_server" in outcome.stdout
