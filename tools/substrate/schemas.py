"""The answers of the substrate's tools."""

from datetime import date, datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import Text

ActionStatus = Literal["proposed", "executed", "rejected", "failed", "reverted"]


class Settings(TypedDict):
    yolo_mode: bool
    propose_consolidations: bool
    organization_id: str
    self_entity_id: str | None
    provisioned_at: datetime | None
    updated_at: datetime | None
    used_bytes: int
    limit_bytes: int | None


class PolicyConflictBrief(TypedDict):
    conflict_id: str
    principle_id: str
    type: str
    message: str


class VerdictAnswer(TypedDict):
    result: str
    reason: str
    conflicts: list[PolicyConflictBrief]


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
    proposed_by: str | None
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


class ActionChange(TypedDict):
    table: str
    id: str
    op: Literal["insert", "update", "delete"]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ActionChanges(TypedDict):
    changes: list[ActionChange]


class RestorePreview(TypedDict):
    snapshot_date: date
    taken_at: datetime
    counts: dict[str, Any]
    would_undo: dict[str, int]
    would_stay: dict[str, int]
    has_more: bool
    payloads: list[dict[str, Any]]


class AppLink(TypedDict):
    app_id: str
    organization_id: str | None
    users: bool


class LinkedApp(TypedDict):
    app_id: str
    name: str
    users: bool


class LinkedApps(TypedDict):
    apps: list[LinkedApp]


class PolicyConflict(TypedDict):
    id: str
    action_id: str
    principle_id: str
    type: str
    message: str
    status: Literal["open", "resolved"]
    resolution: str | None
    reason: str | None
    resolved_at: datetime | None
    created_at: datetime


class PolicyConflicts(TypedDict):
    conflicts: list[PolicyConflict]


class CapabilityRow(TypedDict):
    name: str
    description: str
    default_policy: Literal["auto", "approval_required"]
    reversible: bool
    yolo_eligible: bool
    payload_schema: dict[str, Any]


class Capabilities(TypedDict):
    capabilities: list[CapabilityRow]


class Principle(TypedDict):
    id: str
    title: str
    status: str
    rationale: str | None
    salience: str
    applies_to: dict[str, Any] | None
    constraint_spec: dict[str, Any] | None
    retire_reason: str | None
    from_strangers: bool
    created_at: datetime
    updated_at: datetime


class Principles(TypedDict):
    principles: list[Principle]


class Source(TypedDict):
    action_id: str
    capability: str
    proposed_by_kind: str
    proposed_by: str | None
    source_app_id: str | None
    source_rule_id: str | None


class Entity(TypedDict):
    id: str
    organization_id: str
    type: str
    display_name: str | None
    primary_email: str | None
    canonical_keys: dict[str, str] | None
    linked_app_user_id: str | None
    linked_app_id: str | None
    attrs: dict[str, Any]
    created_by_entity_id: str | None
    created_by_kind: str | None
    from_strangers: bool
    created_at: datetime
    updated_at: datetime
    source: Source | None
    merged_from: NotRequired[str]
    aliases: NotRequired[list[str]]
    alias_names: NotRequired[dict[str, str | None]]
    alias_count: NotRequired[int]
    sim: NotRequired[Annotated[float, Field(alias="_sim")]]


class Entities(TypedDict):
    entities: list[Entity]
    total: NotRequired[int]
    next_cursor: str | None


class Links(TypedDict):
    entity_ids: NotRequired[list[str]]
    project_tags: NotRequired[list[str]]


class Artifact(TypedDict):
    id: str
    kind: str
    external_system: str | None
    external_id: str | None
    title: str
    summary: str | None
    url: str | None
    storage_object_id: str | None
    links: Links | None
    attrs: dict[str, Any]
    source_app_id: str | None
    from_strangers: bool
    created_at: datetime
    updated_at: datetime
    source: Source | None


class ArtifactDetail(Artifact):
    content: str | None


class Artifacts(TypedDict):
    artifacts: list[Artifact]
    total: NotRequired[int]


class MemoryRow(TypedDict):
    id: str
    kind: Literal["decision", "commitment", "learning", "source_artifact"]
    title: str
    body_text: str
    rank: float | None
    updated_at: datetime
    source_artifact_id: str | None
    supersedes: str | None
    status: str | None
    from_strangers: bool
    valid_from: datetime | None
    valid_to: datetime | None
    created_at: datetime
    source: Source | None


class MemoryResults(TypedDict):
    results: list[MemoryRow]


class Receipt(TypedDict):
    seq: int
    body: str
    signature: str
    salt: str | None


class Receipts(TypedDict):
    public_key: str | None
    receipts: list[Receipt]
    next_after: int | None


class MemoryName(TypedDict):
    id: str
    kind: str
    title: str


class DuplicateGroup(TypedDict):
    memories: list[MemoryName]
    payload: dict[str, Any]


class Duplicates(TypedDict):
    groups: list[DuplicateGroup]


class MemoryPage(TypedDict):
    results: list[MemoryRow]
    next_before: datetime | None


class Snapshot(TypedDict):
    snapshot_date: date
    entity_count: int
    decision_count: int
    decision_count_24h: int
    commitment_count: int
    open_commitments: int
    overdue_commitments: int
    learning_count: int
    artifact_count: int
    artifact_count_24h: int
    pending_actions: int
    executed_actions_24h: int
    entities_by_type: dict[str, int]


class Snapshots(TypedDict):
    snapshots: list[Snapshot]


CapabilityName = Annotated[str, Text(60, min_length=1)]
ConditionMode = Literal["snapshot_predicate", "row_query"]


class AttentionRule(TypedDict):
    id: str
    name: str
    description: str | None
    trigger_cron: str
    condition_mode: Literal["snapshot_predicate", "row_query"]
    condition: dict[str, Any]
    action_capability: str
    action_payload_template: dict[str, Any]
    enabled: bool
    max_fires_per_day: int | None
    next_fire_at: datetime | None
    created_at: datetime
    updated_at: datetime


class AttentionRules(TypedDict):
    rules: list[AttentionRule]


class Deleted(TypedDict):
    deleted: bool


class SampleProposal(TypedDict):
    binding: dict[str, Any]
    rendered_payload: dict[str, Any]
    would_require_approval: bool


class RulePreview(TypedDict):
    bindings_count: int
    sample_proposals: list[SampleProposal]
    skip_reason: str | None


class Firing(TypedDict):
    id: str
    status: Literal["fired", "skipped", "capped", "error"]
    binding_count: int
    action_ids: list[str]
    skip_reason: str | None
    fired_at: datetime


class Firings(TypedDict):
    firings: list[Firing]
    next_before: datetime | None


class OutboxTarget(TypedDict):
    capability: str
    webhook_url: str
    source_app_id: str | None
    created_at: datetime
    updated_at: datetime


class OutboxTargets(TypedDict):
    targets: list[OutboxTarget]


class OutboxRow(TypedDict):
    id: str
    action_id: str
    capability: str
    state: Literal["pending", "delivered", "failed", "cancelled"]
    target: str
    attempts: int
    delivery_id: str
    last_status: int | None
    last_error: str | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Outbox(TypedDict):
    outbox: list[OutboxRow]
    next_before: datetime | None


class StreamTicket(TypedDict):
    ticket: str
    expires_in: int
