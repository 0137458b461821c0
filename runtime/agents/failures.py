"""Why a run stops before its end."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core.jobs import JobLost


class RunFailed(Exception):
    """`type` is a word for programs; the message is for people.

    quotes: whether the message is in the words of a tool server or provider, which are for those who run the app.
    """

    def __init__(self, type_: str, message: str, *, quotes: bool = False) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message
        self._quotes_field = {"quotes": True} if quotes else {}

    @property
    def error(self) -> dict[str, Any]:
        """What the run's row keeps."""
        return {"message": self.message, "type": self.type, **self._quotes_field}

    @property
    def event(self) -> dict[str, Any]:
        """What `run_failed` tells."""
        reason = {"reason": self.type} if self.type in ("approval_denied", "timed_out") else {}
        return {"error": self.message, "type": self.type, **reason, **self._quotes_field}


class RunTimedOut(RunFailed):
    """The run used up its time, or nobody decided in time."""

    def __init__(self, message: str) -> None:
        super().__init__("timed_out", message)


class RunTakenOver(JobLost):
    """The run is no longer this job's, which has nothing left to do: its app is being moved, or was deleted."""


class ApprovalPending(Exception):
    """A call that a person must approve first."""

    def __init__(self, approval_id: str, details: dict[str, Any]) -> None:
        super().__init__(approval_id)
        self.approval_id = approval_id
        self.details = details


class ChildRunPending(Exception):
    """A run of another agent that this one goes on after."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class RateLimited(Exception):
    """A call that a limit lets through later: so many seconds from now at the earliest."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class CallDenied(Exception):
    """A call that a person refused."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ToolFailed(Exception):
    """A call that its tool refused, told as a model can use it."""

    def __init__(self, error: dict[str, Any], arguments: Mapping[str, Any] | None = None) -> None:
        super().__init__(error.get("message", ""))
        self.error = error
        self.arguments = arguments
        """Those that a person gave in place of what the run wanted, where one did."""
