"""What an invocation gives back."""

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Literal

LogLevel = Literal["debug", "info", "warn", "error"]

ShutdownReason = Literal[
    "EventLoopCompleted", "WallClockTime", "CPUTime", "Memory", "EarlyDrop", "TerminationRequested", "Crashed"
]
"""Why an invocation, or the process under it, came to its end.

EventLoopCompleted: it did all that it had to. EarlyDrop: the process was ended because of another invocation.
TerminationRequested: the client went away, or the server stopped. Crashed: the process ended by itself.
"""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a program wrote. at: milliseconds since 1970, by the program's clock."""

    level: LogLevel
    message: str
    at: int


@dataclass(frozen=True, slots=True)
class Report:
    """What an invocation needed. cpu_ms: processor time of its process, shared among the invocations that ran at the
    same time. memory_mb: the most that its process had while it ran. logs: as many as are kept; a last line says what
    was cut.
    """

    duration_ms: float
    cpu_ms: float
    memory_mb: float
    shutdown_reason: ShutdownReason | None
    error: str | None = None
    stack: str | None = None
    logs: tuple[LogLine, ...] = ()


@dataclass(slots=True)
class FunctionAnswer:
    """A function's response. body: to be read to its end, or closed (`aclose`), which cancels the invocation.

    report: comes when the body has been sent and what was given to `waitUntil` is done. The body raises the errors of
    `FunctionEngine.invoke` if the function fails after its head was sent.
    """

    status: int
    headers: list[tuple[str, str]]
    body: AsyncIterator[bytes]
    report: Awaitable[Report]
