"""Starts deno behind its walls: every process of this engine begins here."""

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from baobab.runtime.functions.errors import EngineUnavailable

_LAUNCHER = """#!{python} -IS
import json, runpy, sys
order = {order}
order["arguments"] = sys.argv[1:]
sys.argv[1:] = [json.dumps(order)]
runpy.run_path({launch!r})
"""
SANDBOX = Path(__file__).parent / "sandbox"


@cache
def find_deno() -> Path:
    """Returns the path of deno: that of the wheel beside this Python, else one in PATH. Raises EngineUnavailable."""
    beside = Path(sysconfig.get_path("scripts"), "deno")
    path = beside if beside.exists() else shutil.which("deno")
    if not path:
        raise EngineUnavailable(
            "Functions cannot run here: deno was not found. Install it with `pip install deno`. It has no wheel for"
            " Alpine Linux: use an image with glibc there."
        )
    # Landlock names files, and a link would be followed to one that it does not name.
    return Path(path).resolve()


def make_command(arguments: Sequence[str], readable: Sequence[Path]) -> list[str]:
    """Returns a command that runs deno with these arguments and may read these files. Raises EngineUnavailable.

    Give it no environment, the folder `/`, and a session of its own.
    """
    order = {
        "parent": os.getpid(),
        "program": str(find_deno()),
        "arguments": list(arguments),
        # There is no such folder, and none can be made: deno keeps what it would store in memory.
        "environment": {"DENO_DIR": "/proc/none", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"},
        "readable": [str(path) for path in readable],
    }
    return [sys.executable, "-I", "-S", str(SANDBOX / "launch.py"), json.dumps(order)]


def write_monty_launcher(folder: Path) -> Path:
    """Writes a program that runs Monty behind its walls, and returns its path. Raises EngineUnavailable."""
    monty = Path(sysconfig.get_path("scripts"), "monty").resolve()
    if not monty.exists():
        raise EngineUnavailable(
            "Functions in Python cannot run here: Monty was not found. Install `pydantic-monty-runtime`, or write the"
            " function in TypeScript."
        )
    # A thread of the library starts it, which may end before the server does: Monty ends when nobody writes to it.
    order: dict[str, Any] = {"parent": None, "program": str(monty), "environment": {}, "readable": []}
    file = folder / "monty"
    file.write_text(_LAUNCHER.format(python=sys.executable, order=order, launch=str(SANDBOX / "launch.py")))
    file.chmod(0o700)
    return file
