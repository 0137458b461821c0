"""Approvals as the framework and the other domains see them: the port, its values and its errors.

`tools/approvals/service.py` implements the port.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.effects import Effect
from baobab.tools.core.errors import BaobabError, Conflict, Forbidden
from baobab.tools.core.guard.escaping import escape_json


class TooManyPending(Conflict):
    code = "APPROVALS_TOO_MANY"
    summary = "Too many calls are waiting for approval already."
    remediation = "Decide some of them (op:approvals_list), or wait until they expire; details.limit is the maximum."


class TooLargeToPropose(BaobabError):
    code = "APPROVAL_TOO_LARGE"
    status = 413
    summary = "The arguments are too large for a call that waits for approval."
    remediation = "Split the call; details.max_bytes is the limit."


class StreamCannotWait(Forbidden):
    code = "APPROVAL_OF_STREAM"
    summary = "This key needs approval for this call, and a streamed body cannot wait for a person."
    remediation = (
        "Send a small file within a call (op:files_put). For a larger one let op:files_upload wait: the address that "
        "it answers then takes the bytes. Or use a key that needs no approval for this tool."
    )


class EditsTakeOne(Conflict):
    code = "APPROVAL_EDIT_NEEDS_ONE"
    summary = "The arguments of a call that several people must approve cannot be changed."
    remediation = "Approve it without other arguments, or reject it and say in the reason what you want instead."


class AlreadyDecided(Conflict):
    code = "APPROVAL_ALREADY_DECIDED"
    summary = "The approval has already been decided, or has expired."
    remediation = (
        "Nothing is left to decide; op:approvals_get shows the outcome. If the call was yours and you still want it, "
        "make it again."
    )

    @classmethod
    def of(cls, row: Any, name: str | None = None) -> "AlreadyDecided":
        """Builds the error from the row of `approvals`, for somebody who may decide: it says who decided, when and with
        which words. name: of who decided.
        """
        if row.decided_at is None:
            status = "expired" if row.status == "pending" else row.status
            return cls(row.reason, details={"status": status})
        word = "rejected" if row.status == "rejected" else "approved"
        by = "" if row.decided_by is None else f" by {name or row.decided_by}"
        reason = "" if row.reason is None else f" The reason: {escape_json(row.reason)}"
        details = {"status": row.status, "decided_by": row.decided_by, "decided_by_name": name}
        return cls(
            f"It was already {word}{by}, at {row.decided_at:%Y-%m-%d %H:%M:%S} UTC.{reason}",
            details={**details, "decided_at": row.decided_at, "reason": row.reason},
        )


class ApprovalExpired(Conflict):
    code = "APPROVAL_EXPIRED"
    summary = "Nobody decided in time; nothing was done."
    remediation = "Make the call again if you still want it."


class WouldFail(Conflict):
    code = "APPROVAL_WOULD_FAIL"
    summary = "The call would fail now, so it was not approved."
    remediation = "Reject it and give the reason, or approve it all the same with `even_if_failing`: true."

    @classmethod
    def of(cls, error: BaobabError) -> "WouldFail":
        """Builds the refusal to approve a call that would fail with an error now."""
        remediation = f"Mend that first ({error.remedy.rstrip('.')}), or reject the call and give the reason."
        remediation += " To approve it all the same, send `even_if_failing`: true."
        message = f"The call would fail now, so it was not approved: {error.message}"
        return cls(message, remediation=remediation, details={"code": error.code})


class CallFailed(BaobabError):
    """An approved call that its tool refused. Its message and remedy are the tool's."""

    code = "APPROVED_CALL_FAILED"
    status = 409
    summary = "The call was approved, and failed."
    remediation = "Read the message, and make the call again if that helps."


@dataclass(frozen=True, slots=True)
class Edit:
    """Other arguments for an approved call: as its decider wrote them, and all arguments of the tool."""

    written_arguments: Mapping[str, Any]
    all_arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a step of a run. arguments: those that replace what the run proposed; None if none do."""

    approval_id: str
    approved: bool
    by: str | None
    at: datetime
    reason: str | None
    agreed: list[str]
    arguments: dict[str, Any] | None
    by_name: str | None = None

    @property
    def event(self) -> dict[str, Any]:
        """The payload of the event `run_resumed`, without the call's id."""
        word = "denied" if not self.approved else "approved" if self.arguments is None else "edited"
        payload: dict[str, Any] = {
            "approval_id": self.approval_id,
            "decision": word,
            "decided_by": self.by,
            "decided_by_name": self.by_name,
            "decided_at": self.at,
        }
        if len(self.agreed) > 1:
            payload["agreed"] = self.agreed
        if self.arguments is not None:
            payload["args"] = self.arguments
        if self.reason is not None:
            payload["reason"] = self.reason
        return payload


class MeaningChanged(BaobabError):
    code = "APPROVED_CALL_CHANGED"
    status = 409
    summary = "What the call names has changed since it was proposed, so it is not made."
    remediation = "Look at the current state, and make the call again if you still want it."


class Approvals(Protocol):
    """The port to approvals: reads calls that wait for a person, and withdraws those that nobody will decide.

    Proposing a call and deciding about one are ports of their own: tools/core/guard/proposals.py.
    """

    async def wait_for_outcome(self, approval_id: str, caller: Caller, seconds: float) -> str | None:
        """Waits, at most for `seconds`, until a proposal of this very caller has an outcome, and returns its status.

        None if the caller has no such proposal, or its outcome has been handed out.
        """
        ...

    async def read_decision(self, run_id: str, request_id: str) -> Decision | None:
        """Returns the decision about a step of a run; None if nobody has decided."""
        ...

    def arguments(self, row: Any) -> dict[str, Any]:
        """Returns the arguments that the call of a row was proposed with; none once it can no longer be executed."""
        ...

    async def has_ended(self, run_id: str, request_id: str) -> bool:
        """Returns whether a call that a run proposed has been made, refused or left to expire."""
        ...

    async def list_pending_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> Sequence[Any]:
        """Lists the rows that these runs wait for, oldest first, as a transaction sees them."""
        ...

    async def list_decided_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> Sequence[Any]:
        """Lists the rows of these runs that somebody has decided about, newest first: at most a hundred."""
        ...

    async def list_runs_that_wait(self, after: str, most: int) -> list[str]:
        """Lists the ids of runs with a pending proposal, in order: at most `most`, all greater than `after`."""
        ...

    async def list_approved_of_app(self, app_id: str) -> list[str]:
        """Lists the ids of an app's calls that were approved and have not finished."""
        ...

    async def abandon(self, run_id: str) -> None:
        """Withdraws the proposals of a run that has ended, unless they were rejected or their call has begun."""
        ...

    async def erase_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> None:
        """Deletes the proposals of runs in the caller's transaction, except those that are still pending."""
        ...

    async def find_naming(self, execute: Execute, organisation_id: str, is_named: Callable[[str], bool]) -> list[str]:
        """Finds the calls of an organisation that are not made yet and whose arguments, as JSON, a function picks."""
        ...

    async def erase_calls(self, unit: Unit, organisation_id: str, ids: Sequence[str]) -> None:
        """Erases what calls were asked with and what they answered. Those that are not made yet are rejected."""
        ...


def caller_requires_approval(caller: Caller, tool: str, effect: Effect) -> bool:
    """Returns whether a caller's key needs approval for a call of a tool that has this effect."""
    return caller.limits is not None and caller.limits.requires_approval(tool, effect)
