"""The payloads of capabilities."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from baobab.tools.substrate.capabilities import fields


class Payload(BaseModel):
    """The base of all payloads: nothing is converted silently, and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    def collect_sent(self) -> dict[str, Any]:
        """The fields that were sent."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class RecordDecision(Payload):
    title: fields.Title
    kind: fields.DecisionKind
    rationale: fields.LongText | None = None
    salience: fields.Salience = "normal"
    source_artifact_id: fields.ArtifactId | None = None


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
