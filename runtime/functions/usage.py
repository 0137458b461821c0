"""What a process uses, as the kernel counts it."""

import contextlib
import os
import resource
import sys

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_HARD_MARGIN_MB = 256
"""Address space beyond a program's memory after which the kernel refuses more. Between two measurements, a program can
take no more than this.
"""


class ProcessUsage:
    """Reads /proc. Elsewhere than on Linux it knows nothing, and limits nothing."""

    def __init__(self, pid: int) -> None:
        self.memory_mb = 0.0
        """The memory of its own, which excludes what its binary shares with others, when it was read last."""
        self._pid = pid
        self._cpu_ms = 0.0
        self._taken_ms = 0.0
        self._limit_mb: float | None = None
        self._files: list[int] = []
        if sys.platform == "linux":
            # The files are of this process, whoever has its number later.
            with contextlib.suppress(FileNotFoundError):
                self._files = [
                    os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("stat", "status")
                ]

    def read(self) -> bool:
        """Measures. Returns False where that is impossible."""
        if not self._files:
            return False
        try:
            fields = os.pread(self._files[0], 1024, 0).rpartition(b")")[2].split()
            status = os.pread(self._files[1], 4096, 0)
        except ProcessLookupError:
            return False
        self._cpu_ms = (int(fields[11]) + int(fields[12])) * 1000 / _TICKS
        self.memory_mb = _find_kb(status, b"RssAnon:") / 1024
        self._data_mb = _find_kb(status, b"VmData:") / 1024
        return True

    def take_cpu_ms(self) -> float:
        """Returns the processor time since it was taken last, in milliseconds."""
        cpu_ms = self._cpu_ms - self._taken_ms
        self._taken_ms = self._cpu_ms
        return cpu_ms

    def set_base(self, memory_mb: float) -> None:
        """Says that what the process has now is what it needs itself, and how much a program may have beside it."""
        if not self.read():
            return
        self._limit_mb = self.memory_mb + memory_mb
        if sys.platform == "linux":
            most = int((self._data_mb + memory_mb + _HARD_MARGIN_MB) * 2**20)
            with contextlib.suppress(OSError):
                resource.prlimit(self._pid, resource.RLIMIT_DATA, (most, most))

    @property
    def is_over_limit(self) -> bool:
        """Whether it has more memory than it may."""
        return self._limit_mb is not None and self.memory_mb > self._limit_mb

    def close(self) -> None:
        """Closes its files."""
        for each in self._files:
            os.close(each)
        self._files = []


def _find_kb(status: bytes, name: bytes) -> int:
    at = status.find(name)
    return int(status[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0
