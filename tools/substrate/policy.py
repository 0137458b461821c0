"""The policy: what is done at once, and what waits for a person."""

from dataclasses import dataclass
from typing import Literal

from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.capabilities.capability import Capability
from baobab.tools.substrate.errors import SkipNotAllowed
from baobab.tools.substrate.ledger import Ledger
from baobab.tools.substrate.schemas import PolicyConflict

VerdictWord = Literal["auto_approved", "auto_approved_yolo", "requires_approval", "rejected"]


@dataclass(frozen=True, slots=True)
class Verdict:
    result: VerdictWord
    reason: str
    conflicts: tuple[PolicyConflict, ...] = ()

    @property
    def is_approved(self) -> bool:
        return self.result != "requires_approval"


async def judge(ledger: Ledger, found: Capability, proposer: Proposer, *, skip_approval: bool = False) -> Verdict:
    """Says whether an action is done at once. A principle comes before the owner's word, and that before yolo mode."""
    if skip_approval and not proposer.may_skip:
        raise SkipNotAllowed
    if skip_approval:
        return Verdict("auto_approved", "an owner has skipped the approval")
    if proposer.kind == "agent" and found.has_side_effect:
        return Verdict("requires_approval", "what agents send to the outside waits for a person")
    yolo: bool = ledger.settings.yolo_mode
    if yolo and found.yolo_eligible and proposer.kind == "human":
        return Verdict("auto_approved_yolo", "yolo mode is on")
    if found.needs_approval:
        return Verdict("requires_approval", "capability default = approval_required")
    return Verdict("auto_approved", "capability default = auto")
