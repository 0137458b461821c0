"""What processes cost: CPU seconds of one and of all that it has started, and not the time that passed."""

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class _CpuTimes(NamedTuple):
    parent: int
    own: float
    """User and system time of all its threads."""
    of_children: float
    """The same of its children that have ended, and of theirs."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its descendants, those that have ended too."""
    return sum(times.own + times.of_children for times in _process_tree(pid).values())


def cpu_by_process(pid: int) -> dict[int, float]:
    """The same of each that lives, by its pid, without what has ended."""
    return {member: times.own for member, times in _process_tree(pid).items()}


def _process_tree(pid: int) -> dict[int, _CpuTimes]:
    processes = _read_processes()
    tree, generation = {pid: processes[pid]}, {pid}
    while generation:
        generation = {child for child, times in processes.items() if times.parent in generation}
        tree |= {child: processes[child] for child in generation}
    return tree


def _read_processes() -> dict[int, _CpuTimes]:
    processes = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                # It has ended since the folder was listed.
                continue
            user, system, ended_user, ended_system = (int(field) / _TICKS for field in fields[11:15])
            processes[int(folder.name)] = _CpuTimes(int(fields[1]), user + system, ended_user + ended_system)
    return processes
