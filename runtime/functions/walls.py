"""Says which walls stand around functions on this machine."""

import ctypes
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_LANDLOCK_CREATE_RULESET = 444
_FILTERED = ("x86_64", "aarch64")


@dataclass(frozen=True, slots=True)
class Walls:
    """The walls beside deno's own.

    landlock: the version of Landlock's interface, 0 where there is none. seccomp: whether system calls are filtered.
    accounting: whether memory and processor time are measured, and so bounded.
    """

    landlock: int
    seccomp: bool
    accounting: bool

    def describe(self) -> list[str]:
        """Returns a sentence for each wall that is missing; none where all stand."""
        missing = []
        if not self.landlock:
            missing.append("Landlock is missing: only deno itself keeps functions from files. Use Linux 5.13 or later.")
        if not self.seccomp:
            missing.append("Filters of system calls are missing: only deno itself keeps functions from sockets.")
        if not self.accounting:
            missing.append("Memory outside of the heap and processor time of functions are not bounded on this system.")
        return missing


@cache
def find_walls() -> Walls:
    """Asks the kernel what it offers."""
    if sys.platform != "linux":
        return Walls(0, seccomp=False, accounting=False)
    libc = ctypes.CDLL(None, use_errno=True)
    landlock = max(0, libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1))
    seccomp = platform.machine() in _FILTERED and Path("/proc/sys/kernel/seccomp").exists()
    return Walls(landlock, seccomp, accounting=Path("/proc/self/stat").exists())
