"""Decisions, commitments and learnings."""

from typing import Any

from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.capability import ActionContext, Plan, capability, changed_row, new_row
from baobab.tools.substrate.capabilities.schemas import (
    RecordCommitment,
    RecordDecision,
    RecordLearning,
    SupersedeDecision,
    UpdateCommitment,
)
from baobab.tools.substrate.errors import (
    ArtifactNotFound,
    CommitmentNotFound,
    DecisionNotFound,
    InvalidPayload,
    WrongStatus,
)
from baobab.tools.substrate.ledger import Ledger, Row, RowChange


@capability(reversible=True)
async def record_decision(ledger: Ledger, payload: RecordDecision, action: ActionContext) -> Plan:
    """Record a decision."""
    row = await build_decision(ledger, action, **payload.model_dump())
    return Plan({"decision_id": row["id"]}, [RowChange(tables.decisions, row["id"], None, row)])


async def build_decision(ledger: Ledger, action: ActionContext, **values: Any) -> Row:
    """The row of a new decision that is in force."""
    marked = await require_artifact(ledger, values.get("source_artifact_id"))
    empty = dict.fromkeys(
        ("rationale", "supersedes", "source_artifact_id", "applies_to", "constraint_spec", "retire_reason")
    )
    row = new_row(action, ledger.new_id("dec"), **{**empty, "status": "active", **values})
    row["from_strangers"] |= marked
    return row


@capability(needs_approval=True)
async def supersede_decision(ledger: Ledger, payload: SupersedeDecision, action: ActionContext) -> Plan:
    """Replace a decision by another one."""
    old = await require_decision(ledger, payload.old_decision_id)
    row = await build_decision(
        ledger,
        action,
        title=payload.new_title,
        kind=payload.kind,
        rationale=payload.new_rationale,
        salience=old["salience"],
        supersedes=old["id"],
    )
    replaced = changed_row(action, old, status="superseded")
    changes = [
        RowChange(tables.decisions, old["id"], old, replaced),
        RowChange(tables.decisions, row["id"], None, row),
    ]
    return Plan({"decision_id": row["id"], "superseded_decision_id": old["id"]}, changes)


async def require_decision(ledger: Ledger, decision_id: str) -> Row:
    """A decision that is in force."""
    row = await ledger.get(tables.decisions, decision_id)
    if row is None:
        raise DecisionNotFound
    if row["status"] != "active":
        raise WrongStatus("The decision is not in force any more.", details={"status": row["status"]})
    return row


async def require_artifact(ledger: Ledger, artifact_id: str | None) -> bool:
    """Whether text of strangers may be in a source artifact, which must be there; False for none."""
    if artifact_id is None:
        return False
    row = await ledger.get(tables.source_artifacts, artifact_id)
    if row is None:
        raise ArtifactNotFound
    marked: bool = row["from_strangers"]
    return marked


@capability(reversible=True)
async def record_commitment(ledger: Ledger, payload: RecordCommitment, action: ActionContext) -> Plan:
    """Record what somebody has promised."""
    marked = await require_artifact(ledger, payload.source_artifact_id)
    row = new_row(action, ledger.new_id("com"), **{name: getattr(payload, name) for name in type(payload).model_fields})
    row["from_strangers"] |= marked
    plan = Plan({"commitment_id": row["id"]}, [RowChange(tables.commitments, row["id"], None, row)])
    parties = (("from", payload.from_entity), ("to", payload.to_entity))
    plan.links = [{"entity_id": party, "kind": kind} for kind, party in parties if party and party.startswith("ent_")]
    return plan


@capability(reversible=True)
async def update_commitment(ledger: Ledger, payload: UpdateCommitment, action: ActionContext) -> Plan:
    """Change a commitment, such as its status; `attrs` replaces all of them."""
    changing = payload.collect_sent()
    row = await ledger.get(tables.commitments, changing.pop("commitment_id"))
    if row is None:
        raise CommitmentNotFound
    if not changing:
        raise InvalidPayload("payload of update_commitment: there is nothing to change.")
    for name in ("status", "description", "attrs"):
        if name in changing and changing[name] is None:
            raise InvalidPayload(f"payload of update_commitment: `{name}` cannot be null.")
    after = changed_row(action, row, **changing)
    return Plan({"commitment_id": row["id"]}, [RowChange(tables.commitments, row["id"], row, after)])


@capability(reversible=True)
async def record_learning(ledger: Ledger, payload: RecordLearning, action: ActionContext) -> Plan:
    """Record what was learned."""
    related = payload.related_decision_id
    if related is not None and await ledger.get(tables.decisions, related) is None:
        raise DecisionNotFound
    marked = await require_artifact(ledger, payload.source_artifact_id)
    row = new_row(action, ledger.new_id("lrn"), **payload.model_dump())
    row["from_strangers"] |= marked
    return Plan({"learning_id": row["id"]}, [RowChange(tables.learnings, row["id"], None, row)])
