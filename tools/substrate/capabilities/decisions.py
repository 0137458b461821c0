"""Decisions, commitments and learnings."""

from datetime import datetime
from typing import Any

from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.capability import ActionContext, Plan, capability, changed_row, new_row
from baobab.tools.substrate.capabilities.schemas import (
    ConsolidateMemories,
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
    LearningNotFound,
    WrongStatus,
)
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.rows import Row


@capability(reversible=True)
async def record_decision(ledger: Ledger, payload: RecordDecision, action: ActionContext) -> Plan:
    """Record a decision."""
    _check_validity(payload.valid_from, payload.valid_to)
    row = await build_decision(ledger, action, **payload.model_dump())
    return Plan({"decision_id": row["id"]}, [RowChange(tables.decisions, row["id"], None, row)])


async def build_decision(ledger: Ledger, action: ActionContext, **values: Any) -> Row:
    """Returns the row of a new decision that is in force."""
    from_strangers = await require_artifact(ledger, values.get("source_artifact_id"))
    empty = dict.fromkeys(
        (
            *("rationale", "supersedes", "source_artifact_id", "applies_to", "constraint_spec", "retire_reason"),
            *("valid_from", "valid_to", "ended_at"),
        )
    )
    row = new_row(action, ledger.new_id("dec"), **{**empty, "status": "active", **values})
    row["from_strangers"] |= from_strangers
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
        valid_from=action.at,
    )
    replaced_row = changed_row(action, old, status="superseded", **_end(old, action, None))
    changes = [
        RowChange(tables.decisions, old["id"], old, replaced_row),
        RowChange(tables.decisions, row["id"], None, row),
    ]
    return Plan({"decision_id": row["id"], "superseded_decision_id": old["id"]}, changes)


async def require_decision(ledger: Ledger, decision_id: str) -> Row:
    """Returns a decision that is in force. Raises DecisionNotFound and WrongStatus."""
    row = await ledger.get(tables.decisions, decision_id)
    if row is None:
        raise DecisionNotFound
    if row["status"] != "active":
        raise WrongStatus("The decision is no longer in force.", details={"status": row["status"]})
    return row


async def require_artifact(ledger: Ledger, artifact_id: str | None) -> bool:
    """Tells whether strangers may have written a source artifact; False without one. Raises ArtifactNotFound."""
    if artifact_id is None:
        return False
    row = await ledger.get(tables.source_artifacts, artifact_id)
    if row is None:
        raise ArtifactNotFound
    from_strangers: bool = row["from_strangers"]
    return from_strangers


@capability(reversible=True)
async def record_commitment(ledger: Ledger, payload: RecordCommitment, action: ActionContext) -> Plan:
    """Record what somebody has promised."""
    _check_validity(payload.valid_from, payload.valid_to)
    from_strangers = await require_artifact(ledger, payload.source_artifact_id)
    fields = {name: getattr(payload, name) for name in type(payload).model_fields}
    row = new_row(action, ledger.new_id("com"), **fields, ended_at=None)
    row["from_strangers"] |= from_strangers
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
    """Record what was learned. With `replaces`, an earlier learning is true no longer from `valid_from` on, else from
    now; it stays, for those who ask what was known.
    """
    _check_validity(payload.valid_from, payload.valid_to)
    related_id = payload.related_decision_id
    if related_id is not None and await ledger.get(tables.decisions, related_id) is None:
        raise DecisionNotFound
    from_strangers = await require_artifact(ledger, payload.source_artifact_id)
    row = new_row(action, ledger.new_id("lrn"), **payload.model_dump(), ended_at=None)
    row["from_strangers"] |= from_strangers
    plan = Plan({"learning_id": row["id"]}, [RowChange(tables.learnings, row["id"], None, row)])
    if payload.replaces is not None:
        old = await ledger.get(tables.learnings, payload.replaces)
        if old is None:
            raise LearningNotFound
        if old["ended_at"] is not None:
            raise WrongStatus("The learning was replaced before.", details={"status": "replaced"})
        ended_change = changed_row(action, old, **_end(old, action, payload.valid_from))
        plan.changes.insert(0, RowChange(tables.learnings, old["id"], old, ended_change))
        plan.result["replaced_learning_id"] = old["id"]
    return plan


@capability(needs_approval=True, reversible=True)
async def consolidate_memories(ledger: Ledger, payload: ConsolidateMemories, action: ActionContext) -> Plan:
    """Keep one of several memories that say the same, perhaps in better words. The other learnings are gone, other
    decisions are superseded.
    """
    duplicate_ids = list(dict.fromkeys(payload.duplicate_ids))
    prefix = payload.kept_id[:4]
    if payload.kept_id in duplicate_ids or any(not each.startswith(prefix) for each in duplicate_ids):
        raise InvalidPayload("payload of consolidate_memories: the duplicates are others of the same kind.")
    is_decision = prefix == "dec_"
    table, text = (tables.decisions, "rationale") if is_decision else (tables.learnings, "description")
    rows = await ledger.load(table, [payload.kept_id, *duplicate_ids])
    for each in (payload.kept_id, *duplicate_ids):
        if each not in rows:
            raise DecisionNotFound if is_decision else LearningNotFound
        if is_decision and rows[each]["status"] != "active":
            raise WrongStatus("A decision is no longer in force.", details={"status": rows[each]["status"]})
        if is_decision and rows[each]["constraint_spec"] is not None:
            raise InvalidPayload("payload of consolidate_memories: principles are amended or retired instead.")
    kept_row, duplicates = rows[payload.kept_id], [rows[each] for each in duplicate_ids]
    fields = {"title": payload.title, text: payload.text}
    changing: Row = {name: value for name, value in fields.items() if value is not None}
    if kept_row["source_artifact_id"] is None:
        sources = [row["source_artifact_id"] for row in duplicates if row["source_artifact_id"] is not None]
        changing["source_artifact_id"] = sources[0] if sources else None
    after = changed_row(action, kept_row, **changing)
    after["from_strangers"] |= any(row["from_strangers"] for row in duplicates)
    changes = [RowChange(table, kept_row["id"], kept_row, after)]
    for row in duplicates:
        after_duplicate = (
            changed_row(action, row, status="superseded", **_end(row, action, None)) if is_decision else None
        )
        changes.append(RowChange(table, row["id"], row, after_duplicate))
    return Plan({"kept_id": kept_row["id"], "consolidated": duplicate_ids}, changes)


def _check_validity(valid_from: datetime | None, valid_to: datetime | None) -> None:
    if valid_from is not None and valid_to is not None and valid_to <= valid_from:
        raise InvalidPayload("`valid_to` must be later than `valid_from`.")


def _end(row: Row, action: ActionContext, at: datetime | None) -> Row:
    """Returns the fields of a row that change when something ends it. at: when it stopped being true; None for now."""
    ends = min(at or action.at, row["valid_to"] or at or action.at)
    if row["valid_from"] is not None:
        ends = max(ends, row["valid_from"])
    return {"valid_to": ends, "ended_at": action.at}
