"""Starts other processes and hears what they answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

_CHILD = Path(__file__).with_name("child_process.py")


async def run_children(*roles: tuple[object, ...]) -> list[int]:
    """Of processes that run side by side."""
    processes = [
        subprocess.Popen([sys.executable, str(_CHILD), *map(str, role)], stdout=subprocess.PIPE) for role in roles
    ]
    outputs = [(await asyncio.to_thread(process.communicate))[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [int(output) for output in outputs]
