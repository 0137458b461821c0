"""The payloads of capabilities."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from baobab.tools.substrate.capabilities import fields


class Payload(BaseModel):
    """The base of all payloads: nothing is converted silently, and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    def collect_sent(self) -> dict[str, Any]:
        """Returns the fields that were sent."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class RecordDecision(Payload):
    title: fields.Title
    kind: fields.DecisionKind
    rationale: fields.LongText | None = None
    salience: fields.Salience = "normal"
    source_artifact_id: fields.ArtifactId | None = None
    valid_from: fields.When | None = None
    valid_to: fields.When | None = None


class SupersedeDecision(Payload):
    old_decision_id: fields.DecisionId
    new_title: fields.Title
    kind: fields.DecisionKind
    new_rationale: fields.LongText | None = None


class RecordCommitment(Payload):
    description: fields.Description
    status: fields.CommitmentStatus
    from_entity: fields.Party | None = None
    to_entity: fields.Party | None = None
    amount: fields.Amount | None = None
    unit: fields.Unit | None = None
    due_at: fields.When | None = None
    source_artifact_id: fields.ArtifactId | None = None
    attrs: fields.Attributes = Field(default_factory=dict)
    valid_from: fields.When | None = None
    valid_to: fields.When | None = None


class UpdateCommitment(Payload):
    commitment_id: fields.CommitmentId
    status: fields.CommitmentStatus | None = None
    description: fields.Description | None = None
    amount: fields.Amount | None = None
    unit: fields.Unit | None = None
    due_at: fields.When | None = None
    attrs: fields.Attributes | None = None


class RecordLearning(Payload):
    title: fields.Title
    description: fields.Description
    resolution_taken: fields.LongText | None = None
    related_decision_id: fields.DecisionId | None = None
    source_artifact_id: fields.ArtifactId | None = None
    valid_from: fields.When | None = None
    valid_to: fields.When | None = None
    replaces: fields.LearningId | None = None


class ConsolidateMemories(Payload):
    kept_id: fields.MemoryId
    duplicate_ids: fields.MemoryIds
    reason: fields.Reason
    title: fields.Title | None = None
    text: fields.Description | None = None


class Forget(Payload):
    ids: fields.ForgottenIds
    reason: fields.Reason


class UpsertEntity(Payload):
    type: fields.EntityType
    display_name: fields.DisplayName
    id: fields.EntityId | None = None
    primary_email: fields.Email | None = None
    canonical_keys: fields.CanonicalKeys = Field(default_factory=dict)
    linked_app_user_id: fields.Uuid | None = None
    linked_app_id: fields.AppId | None = None
    attrs: fields.Attributes = Field(default_factory=dict)


class UpdateEntity(Payload):
    id: fields.EntityId
    display_name: fields.DisplayName | None = None
    primary_email: fields.Email | None = None
    attrs: fields.Attributes | None = None


class PatchEntity(Payload):
    id: fields.EntityId
    display_name: fields.DisplayName | None = None
    primary_email: fields.Email | None = None
    attrs_patch: fields.Attributes | None = None
    if_updated_at: fields.When | None = None


class MergeEntities(Payload):
    loser_id: fields.EntityId
    winner_id: fields.EntityId
    reason: fields.Reason


class UnmergeEntities(Payload):
    entity_id: fields.EntityId
    reason: fields.Reason


class DeleteEntity(Payload):
    id: fields.EntityId
    reason: fields.Reason


class ArtifactLinks(Payload):
    entity_ids: fields.EntityIds | None = None
    project_tags: fields.Tags | None = None


class UpsertSourceArtifact(Payload):
    kind: fields.Word
    title: fields.Title
    id: fields.ArtifactId | None = None
    external_system: fields.Word | None = None
    external_id: fields.ExternalId | None = None
    summary: fields.LongText | None = None
    content: fields.Content | None = None
    storage_object_id: fields.Word | None = None
    url: fields.Url | None = None
    links: ArtifactLinks | None = None
    attrs: fields.Attributes | None = None


class AppliesTo(Payload):
    capability: fields.Word
    target_role: fields.Word | None = None


class NoParameters(Payload):
    pass


class MostParameters(Payload):
    n: fields.Most


class Forbid(Payload):
    type: Literal["forbid", "require_approval"]
    params: NoParameters = Field(default_factory=NoParameters)


class AtMost(Payload):
    type: Literal["max_per_week", "max_per_day"]
    params: MostParameters


Constraint = Annotated[Forbid | AtMost, Field(discriminator="type")]


class RecordPrinciple(Payload):
    title: fields.Title
    applies_to: AppliesTo
    constraint_spec: Constraint
    rationale: fields.LongText | None = None
    salience: fields.Salience = "ambient"


class AmendPrinciple(Payload):
    principle_id: fields.DecisionId
    title: fields.Title | None = None
    applies_to: AppliesTo | None = None
    constraint_spec: Constraint | None = None
    rationale: fields.LongText | None = None
    salience: fields.Salience | None = None


class RetirePrinciple(Payload):
    principle_id: fields.DecisionId
    reason: fields.Reason


class RevertAction(Payload):
    action_id: fields.ActionId
    cascade: bool = False


class BulkRevertActions(Payload):
    action_ids: fields.ActionIds
    reason: fields.Reason
    cascade: bool = False


class SendEmailDraft(Payload):
    to: fields.Party
    subject: fields.Title
    body: fields.Description
    target_role: fields.Word | None = None


class PlaceCall(Payload):
    to: fields.Party
    purpose: fields.Description
    script: fields.LongText | None = None
    target_role: fields.Word | None = None
