"""The answers of the substrate's tools."""

from datetime import datetime
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

ActionStatus = Literal["proposed", "executed", "rejected", "failed", "reverted"]


class Settings(TypedDict):
    yolo_mode: bool
    organization_id: str
    self_entity_id: str | None
    provisioned_at: datetime | None
    updated_at: datetime | None


class PolicyConflict(TypedDict):
    conflict_id: str
    principle_id: str
    type: str
    message: str


class VerdictAnswer(TypedDict):
    result: str
    reason: str
    conflicts: list[PolicyConflict]


class Proposal(TypedDict):
    action_id: str
    verdict: VerdictAnswer
    requires_approval: bool
    result: dict[str, Any] | None
    replay: NotRequired[bool]


class Link(TypedDict):
    entity_id: str
    kind: str


class Action(TypedDict):
    id: str
    capability: str
    status: ActionStatus
    source_app_id: str | None
    source_rule_id: str | None
    proposed_at: datetime
    decided_at: datetime | None
    executed_at: datetime | None
    payload: dict[str, Any]
    result: dict[str, Any] | None
    reversible: bool
    reverted_by_action_id: str | None
    verdict: str
    requires_approval_reason: str | None
    proposed_by_kind: str
    proposed_by_entity_id: str | None
    approved_by_kind: str | None
    reject_reason: str | None
    idempotency_key: str | None
    trigger_context: dict[str, Any] | None
    links: list[Link] | None
    from_strangers: bool
    created_at: datetime
    updated_at: datetime


class Actions(TypedDict):
    actions: list[Action]
    next_before: datetime | None
