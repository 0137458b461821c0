"""Proposals as the registry and the domains see them: a call is proposed, and somebody decides about it.

The port `Approvals`, which calls find among their services, cannot name a call. These two can, and are found with
`Services.part`. `tools/approvals/` implements all three.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from baobab.tools.core.auth.callers import Limits
from baobab.tools.core.auth.deciders import Decider
from baobab.tools.core.call import Call
from baobab.tools.core.guard.approvals import Edit


@runtime_checkable
class Proposals(Protocol):
    """Calls that wait for a person, and their outcomes. Each method works in a transaction of its own."""

    async def propose(
        self, call: Call, arguments: Mapping[str, Any], meaning: str | None = None, label: str | None = None
    ) -> Any:
        """Returns the result of this very call if it was approved and has run since; else proposes it.

        Raises ApprovalRequired, ApprovalRejected, ApprovalExpired, CallFailed, TooManyPending or TooLargeToPropose.
        meaning: a digest of what the arguments only name. label: what people call the row that the call is about.
        """
        ...

    async def is_approved(self, call: Call, arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Returns whether this very call was approved, and its outcome has not been handed out."""
        ...

    async def has_proposal(self, call: Call, arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Returns whether this very call was proposed before, and still waits or has an outcome to hand out."""
        ...


@runtime_checkable
class Decisions(Protocol):
    """Decisions about calls that wait. Each method works in the transaction of the call that it is given."""

    async def decide(
        self,
        call: Call,
        approval_id: str,
        decider: Decider,
        status: Literal["approved", "rejected"],
        reason: str | None,
        edit: Edit | None = None,
    ) -> Literal["decided", "waits"]:
        """Decides a pending approval. Returns `waits` if another person must approve it, too.

        Raises NotYoursToDecide, NotAnApprover, AlreadyDecided, NeedsAnother or EditsTakeOne, and BadRequest where a
        question is approved without an answer that matches its schema.
        """
        ...

    async def require_decidable(
        self, call: Call, row: Any, decider: Decider, status: Literal["approved", "rejected"], edit: Edit | None = None
    ) -> None:
        """Raises what `decide` would raise about the waiting call of a row as it is now."""
        ...

    async def require_success(
        self,
        call: Call,
        row: Any,
        decider: Decider,
        arguments: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> bool:
        """Raises WouldFail if the waiting call of a row would fail now. Returns whether it would delete something now.

        call: `Call.reading_apart` of the decision, because looking may take long. arguments, data: as the decider gives
        them in place of the run's.
        """
        ...

    async def withdraw_exempt(self, call: Call, key_id: str, limits: Limits) -> None:
        """Withdraws the pending proposals of a key that the key need not ask for any more with its new limits."""
        ...
