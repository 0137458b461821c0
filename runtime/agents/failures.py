"""The exceptions that stop or pause a run before its end."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core.jobs import JobLost

INTERNAL_FIELDS = ("code", "remediation", "details")
"""The fields of a failure that users and visitors of the app are not told."""


class RunFailed(Exception):
    """Fails the run. `type` is a code for programs; the message is for people.

    quotes: whether the message quotes a tool server or provider, which only those who run the app may see. cause: the
    refusal behind it, with code, remediation and details, as its direct caller would get it; for the same people.
    milliseconds: if a child run failed, from its start to its end.
    """

    def __init__(
        self,
        type_: str,
        message: str,
        *,
        quotes: bool = False,
        cause: Mapping[str, Any] | None = None,
        milliseconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.milliseconds = milliseconds
        self.type = type_
        self.message = message
        self._quotes_field = {"quotes": True} if quotes else {}
        self.cause = {name: value for name, value in (cause or {}).items() if name in INTERNAL_FIELDS}

    @property
    def error(self) -> dict[str, Any]:
        """The error in the run's row."""
        return {"message": self.message, "type": self.type, **self.cause, **self._quotes_field}

    @property
    def event(self) -> dict[str, Any]:
        """The payload of the event `run_failed`."""
        reason = {"reason": self.type} if self.type in ("approval_denied", "timed_out") else {}
        return {"error": self.message, "type": self.type, **reason, **self.cause, **self._quotes_field}


class RunTimedOut(RunFailed):
    """The run used up its time, or nobody decided in time."""

    def __init__(self, message: str) -> None:
        super().__init__("timed_out", message)


class RunTakenOver(JobLost):
    """The run no longer belongs to this job, which has nothing left to do: its app is being moved or was deleted."""


class ApprovalPending(Exception):
    """A call waits for the approval of a person."""

    def __init__(self, approval_id: str, details: dict[str, Any]) -> None:
        super().__init__(approval_id)
        self.approval_id = approval_id
        self.details = details


class ChildRunPending(Exception):
    """The run waits for a child run to end."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class RateLimited(Exception):
    """A call hit a rate limit; it may be repeated after that many seconds."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class CallDenied(Exception):
    """A person rejected a call."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ToolFailed(Exception):
    """A call failed. error: code and message, in a form that a model can use."""

    def __init__(self, error: dict[str, Any], arguments: Mapping[str, Any] | None = None) -> None:
        super().__init__(error.get("message", ""))
        self.error = error
        self.arguments = arguments
        """The arguments that a person gave in place of the run's; None if nobody did."""
