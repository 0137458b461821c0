"""Approvals as the framework and the other domains see them: what may be asked of them, and what is told.

`tools/approvals/service.py` does it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from baobab.storage.database import Execute, Unit
from baobab.tools.core.auth.callers import Caller, Limits
from baobab.tools.core.auth.deciders import Decider
from baobab.tools.core.effects import Effect
from baobab.tools.core.errors import BaobabError, Conflict, Forbidden


class TooManyPending(Conflict):
    code = "APPROVALS_TOO_MANY"
    summary = "Too many calls are waiting for approval already."
    remediation = "Decide some of them (op:approvals_list), or wait until they expire; details.limit is the most."


class TooLargeToPropose(BaobabError):
    code = "APPROVAL_TOO_LARGE"
    status = 413
    summary = "The call's arguments are too large to wait for approval."
    remediation = "Split the call; details.max_bytes is the limit."


class StreamCannotWait(Forbidden):
    code = "APPROVAL_OF_STREAM"
    summary = "This key must ask before this call, and bytes that arrive as a stream cannot wait for a person."
    remediation = (
        "Send a small file within a call (op:files_put). For a larger one let op:files_upload wait: the address that "
        "it answers then takes the bytes. Or use a key that need not ask for this tool."
    )


class EditsTakeOne(Conflict):
    code = "APPROVAL_EDIT_NEEDS_ONE"
    summary = "The arguments of a call that several people must approve cannot be changed."
    remediation = "Approve it without other arguments, or reject it and say in the reason what you want instead."


class ApprovalExpired(Conflict):
    code = "APPROVAL_EXPIRED"
    summary = "Nobody decided in time; nothing was done."
    remediation = "Make the call again if you still want it."


class CallFailed(BaobabError):
    """An approved call that its tool refused, told in the tool's own words."""

    code = "APPROVED_CALL_FAILED"
    status = 409
    summary = "The call was approved, and failed."
    remediation = "Read the message, and make the call again if that helps."


@dataclass(frozen=True, slots=True)
class Edit:
    """Other arguments for an approved call. given: as its decider wrote them; whole: all that the tool is given."""

    given: Mapping[str, Any]
    whole: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a step of a run. arguments: those given in place of what the run wanted, if any."""

    approval_id: str
    approved: bool
    by: str | None
    at: datetime
    reason: str | None
    agreed: list[str]
    arguments: dict[str, Any] | None

    @property
    def event(self) -> dict[str, Any]:
        """The payload of `run_resumed`, but for the call's id."""
        word = "denied" if not self.approved else "approved" if self.arguments is None else "edited"
        payload: dict[str, Any] = {
            "approval_id": self.approval_id,
            "decision": word,
            "decided_by": self.by,
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
    """Calls that wait for a person. Methods that take a call work in its transaction, unless they say otherwise.

    A `call` is a `Call`; it cannot be named here, where it finds this port among its services.
    """

    async def propose(self, call: Any, arguments: Mapping[str, Any], meaning: str | None = None) -> Any:
        """The outcome of this very call where it was approved and has run since; else ApprovalRequired.

        In a transaction of its own. ApprovalRejected, CallFailed, ApprovalExpired, TooManyPending, TooLargeToPropose.
        meaning: a digest of what the arguments only name.
        """
        ...

    async def is_approved(self, call: Any, arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Whether this very call was approved, and its outcome has not been handed out."""
        ...

    async def has_proposal(self, call: Any, arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Whether this very call was proposed before, and waits still or has an outcome to tell."""
        ...

    async def finish(self, call: Any, result: Any) -> None:
        """Mark an approved call as made; JobLost where another attempt has taken over."""
        ...

    async def wait_for_outcome(self, approval_id: str, caller: Caller, seconds: float) -> str | None:
        """The status of a proposal of this very caller, once it has an outcome or the time is over.

        None where there is no such proposal, or its outcome has been told.
        """
        ...

    async def decide(
        self,
        call: Any,
        approval_id: str,
        decider: Decider,
        status: Literal["approved", "rejected"],
        reason: str | None,
        edit: Edit | None = None,
    ) -> Literal["decided", "waits", "lost"]:
        """Decide a pending approval.

        `lost` where somebody else has, or it expired; `waits` where another person must approve it, too.
        NotYoursToDecide, NotAnApprover, NeedsAnother, EditsTakeOne.
        """
        ...

    async def read_decision(self, run_id: str, request_id: str) -> Decision | None:
        """What was decided about a step of a run; None where nobody has."""
        ...

    def arguments(self, row: Any) -> dict[str, Any]:
        """What the call of a row was proposed with; nothing once it can no longer be executed."""
        ...

    async def has_ended(self, run_id: str, request_id: str) -> bool:
        """Whether a call that a run proposed has been made, refused or left to expire."""
        ...

    async def list_pending_of_runs(self, call: Any, run_ids: Sequence[str]) -> Sequence[Any]:
        """The rows that these runs wait for, oldest first."""
        ...

    async def list_runs_that_wait(self, after: str, most: int) -> list[str]:
        """The ids of runs with a pending proposal, in order, from the first one behind `after`."""
        ...

    async def list_approved_of_app(self, app_id: str) -> list[str]:
        """The ids of an app's calls that were approved, and are not finished yet."""
        ...

    async def withdraw_exempt(self, call: Any, key_id: str, limits: Limits) -> None:
        """Withdraw what a key proposed, and need not ask for any more with its new limits."""
        ...

    async def abandon(self, run_id: str) -> None:
        """Withdraw what a run proposed, and nobody has decided or begun to make: the run has ended."""
        ...

    async def erase_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> None:
        """Delete what runs proposed, but for what nobody has decided yet."""
        ...

    async def find_naming(self, execute: Execute, organisation_id: str, is_named: Callable[[str], bool]) -> list[str]:
        """The ids of an organisation's calls that are not made yet and whose arguments, as JSON, a function picks."""
        ...

    async def erase_calls(self, unit: Unit, services: Any, organisation_id: str, ids: Sequence[str]) -> None:
        """Erase what calls were asked with and answered, and reject those that are not made yet.

        `services` are the `Services`, which cannot be named here.
        """
        ...


def caller_requires_approval(caller: Caller, tool: str, effect: Effect) -> bool:
    """Whether what a caller holds lets it make a call of a tool, which has this effect, with approval only."""
    return caller.limits is not None and caller.limits.requires_approval(tool, effect)
