"""How an invocation fails."""

from baobab.runtime.functions.answer import Report


class FunctionError(Exception):
    """The root of what `FunctionEngine.invoke` raises. report: what the invocation needed, where it ran at all."""

    report: Report | None = None


class FunctionTimedOut(FunctionError):
    """The function took longer than its timeout, or more processor time than an invocation may have."""

    def __init__(self, duration_ms: float, message: str = "The function did not answer in its time.") -> None:
        super().__init__(message)
        self.duration_ms = duration_ms


class FunctionThrew(FunctionError):
    """The function threw, or its process ended. error: name and message. stack: without paths of the server."""

    def __init__(self, error: str, stack: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.stack = stack


class NotAResponse(FunctionError):
    """The function returned something that is not a `Response`."""


class OutOfMemory(FunctionError):
    """The function's process needed more memory than it may have."""


class ResponseTooLarge(FunctionError):
    """The function sent more bytes than a response may have."""


class FunctionCancelled(FunctionError):
    """The invocation was stopped because its caller went away, or the server stops."""


class FunctionsBusy(FunctionError):
    """All places for functions are taken, or all that one organisation may have."""

    def __init__(self, message: str, retry_after_seconds: int = 5) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class EngineUnavailable(FunctionError):
    """Functions cannot be run here. reason: what is missing and how to get it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
