"""How much the functions of an installation may use."""

import os
from dataclasses import dataclass, field


def _default_memory_mb() -> int:
    """Half of the machine's memory, at least 512 MB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**31
    return max(512, total // 2**21)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of the engine. Those of one function, its time and its memory, come with each invocation.

    total_memory_mb: what all processes may have together; a process at work counts with all that its function may use,
    an idle one with what it has. organisation_share: the part of that which the processes of one organisation may take
    that are at work. has_spare: whether a process without a program waits for the next cold call, while
    there are calls. idle_seconds: after how long without work a process ends. cpu_ms: processor time of one invocation.
    python_body_bytes: of each body of a function in Python, which is whole in memory.
    """

    total_memory_mb: int = field(default_factory=_default_memory_mb)
    organisation_share: float = 0.5
    processes: int = 64
    has_spare: bool = True
    idle_seconds: float = 60.0
    load_seconds: float = 10.0
    cpu_ms: float = 10_000.0
    invocations: int = 1000
    invocations_of_organisation: int = 300
    invocations_of_process: int = 100
    request_bytes: int = 100 * 2**20
    response_bytes: int = 100 * 2**20
    log_bytes: int = 256 * 2**10
    log_lines: int = 1000
    open_calls: int = 64
    call_bytes: int = 8 * 2**20
    wait_until_seconds: float = 30.0
    python_processes: int = 8
    python_body_bytes: int = 16 * 2**20
