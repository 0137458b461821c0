"""Keeps the lines that an invocation writes, up to a limit."""

from collections.abc import Callable

from baobab.runtime.functions.answer import LogLevel, LogLine
from baobab.runtime.functions.limits import EngineLimits

_BESIDE_MESSAGE = 32


class LogKeeper:
    """The lines of one invocation. Each is passed on when it comes."""

    def __init__(self, limits: EngineLimits, on_log: Callable[[LogLine], None]) -> None:
        self._limits = limits
        self._on_log = on_log
        self._lines: list[LogLine] = []
        self._bytes = 0
        self._lines_cut = 0

    def add(self, level: LogLevel, message: str, at: int) -> None:
        """Takes a line, or counts it where there is no room for it."""
        size = len(message) + _BESIDE_MESSAGE
        if len(self._lines) >= self._limits.log_lines or self._bytes + size > self._limits.log_bytes:
            self._lines_cut += 1
            return
        self._bytes += size
        self._keep(LogLine(level, message, at))

    def finish(self) -> tuple[LogLine, ...]:
        """Returns the lines; a last one says how many were cut."""
        if self._lines_cut:
            text = f"{self._lines_cut} more lines were cut: an invocation keeps {self._limits.log_lines} lines and"
            at = self._lines[-1].at if self._lines else 0
            self._keep(LogLine("warn", f"{text} {self._limits.log_bytes} bytes.", at))
            self._lines_cut = 0
        return tuple(self._lines)

    def _keep(self, line: LogLine) -> None:
        self._lines.append(line)
        self._on_log(line)
