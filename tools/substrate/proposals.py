"""Proposals: an action is proposed, judged, and done at once or when a person has approved it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import insert, select, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import BaobabError, Services
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.capabilities.capability import ActionContext, Plan, find_capability
from baobab.tools.substrate.errors import ActionNotFound, WrongStatus
from baobab.tools.substrate.forgetting import erase_traces
from baobab.tools.substrate.ledger import Ledger, open_ledger
from baobab.tools.substrate.outbox import deliver_executed
from baobab.tools.substrate.policy import Verdict, forbid_waiting, judge, record_conflicts, settle_conflicts
from baobab.tools.substrate.quota import measure_action
from baobab.tools.substrate.rows import Row
from baobab.tools.substrate.schemas import Proposal, VerdictAnswer

_ledger = tables.action_ledger
# Built once, since that takes longer than to run it.
_INSERT = insert(_ledger)
_AT_ONCE = 500


async def propose(
    unit: Unit,
    services: Services,
    organisation_id: str,
    proposer: Proposer,
    capability: str,
    payload: Mapping[str, Any],
    *,
    idempotency_key: str | None = None,
    skip_approval: bool = False,
) -> Proposal:
    """Proposes an action in a transaction, and does it where the policy lets it.

    Raises UnknownCapability, InvalidPayload, SkipNotAllowed, and what the capability's plan raises; then nothing has
    changed and nothing is in the ledger.
    """
    async with open_ledger(unit, services, organisation_id) as ledger:
        return await propose_in(
            ledger, proposer, capability, payload, idempotency_key=idempotency_key, skip_approval=skip_approval
        )


async def propose_in(
    ledger: Ledger,
    proposer: Proposer,
    capability: str,
    payload: Mapping[str, Any],
    *,
    idempotency_key: str | None = None,
    skip_approval: bool = False,
) -> Proposal:
    """Does the same as `propose`, with a ledger that is open."""
    if idempotency_key is not None:
        earlier_row = await _find_by_key(ledger, idempotency_key)
        if earlier_row is not None:
            return _replay(earlier_row, proposer)
    found_capability = find_capability(capability)
    valid_payload = found_capability.validate(payload)
    action = build_context(ledger, proposer)
    # Also where it will wait: what cannot be done is refused at once.
    plan = await found_capability.plan(ledger, valid_payload, action)
    sent_payload = valid_payload.model_dump(mode="json", exclude_unset=True)
    verdict = await judge(
        ledger,
        found_capability,
        sent_payload,
        proposer,
        action.at,
        skip_approval=skip_approval,
        agents_wait=plan.agents_wait,
    )
    return await _enter(
        ledger,
        proposer,
        action,
        found_capability.name,
        sent_payload,
        plan,
        verdict,
        found_capability.is_reversible,
        idempotency_key,
    )


async def carry_out_directly(
    ledger: Ledger,
    proposer: Proposer,
    action: ActionContext,
    capability: str,
    payload: Mapping[str, Any],
    plan: Plan,
) -> Proposal:
    """Does what a person's own tool has planned, as an action of the ledger that can be undone."""
    verdict = Verdict("auto_approved", "a person does it with a tool of its own")
    return await _enter(ledger, proposer, action, capability, payload, plan, verdict, is_reversible=True)


def build_context(ledger: Ledger, proposer: Proposer) -> ActionContext:
    """Returns a new action, whose plan is then made."""
    return ActionContext(
        id=ledger.new_id("act"),
        at=ledger.stamp(),
        kind=proposer.kind,
        app_id=proposer.app_id,
        entity_id=proposer.entity_id or (ledger.settings.self_entity_id if proposer.kind == "human" else None),
        from_strangers=proposer.from_strangers,
    )


async def _enter(
    ledger: Ledger,
    proposer: Proposer,
    action: ActionContext,
    capability: str,
    payload: Mapping[str, Any],
    plan: Plan,
    verdict: Verdict,
    is_reversible: bool,
    idempotency_key: str | None = None,
) -> Proposal:
    """Writes a new action into the ledger, and does it if the verdict says so."""
    row: Row = {
        "organisation_id": ledger.organisation_id,
        "id": action.id,
        "capability": capability,
        "status": "executed" if verdict.is_approved else "proposed",
        "payload": payload,
        "result": plan.result if verdict.is_approved else None,
        "idempotency_key": idempotency_key,
        "verdict": verdict.result,
        "verdict_reason": verdict.reason,
        "reversible": is_reversible,
        "reverted_by_action_id": None,
        "proposed_by_kind": proposer.kind,
        "proposed_by": proposer.name,
        "proposed_by_entity_id": action.entity_id,
        "approval_id": proposer.approval_id,
        "source_app_id": proposer.app_id,
        "source_rule_id": proposer.rule_id,
        "trigger_context": None if proposer.trigger_context is None else dict(proposer.trigger_context),
        "from_strangers": proposer.from_strangers or plan.is_marked(is_done=verdict.is_approved),
        "links": plan.links or None,
        "proposed_at": action.at,
        "executed_at": action.at if verdict.is_approved else None,
        "created_at": action.at,
        "updated_at": action.at,
    }
    size = measure_action(row)
    written_bytes = ledger.stamp_rows(plan.changes) if verdict.is_approved else 0
    if not plan.frees:
        ledger.require_room(size + written_bytes)
    await ledger.unit.write(_INSERT, row)
    ledger.count(size)
    ledger.tell(_ledger, "insert", action.id)
    if verdict.conflicts:
        await record_conflicts(ledger, {action.id: verdict.conflicts})
    if verdict.is_approved:
        await _carry_out(ledger, row, plan)
    return {
        "action_id": action.id,
        "verdict": {"result": verdict.result, "reason": verdict.reason, "conflicts": list(verdict.conflicts)},
        "requires_approval": not verdict.is_approved,
        "result": row["result"],
    }


async def approve(ledger: Ledger, action_id: str, decided_by: str) -> Row:
    """Carries out an action that waits. Where it cannot be done any more, its status is `failed` and says why."""
    row = await _require_proposed(ledger, action_id)
    await settle_conflicts(ledger, action_id, "approved", decided_by)
    capability = find_capability(row["capability"])
    at, size = ledger.stamp(), measure_action(row)
    proposer = (row["proposed_by_kind"], row["source_app_id"], row["proposed_by_entity_id"], row["from_strangers"])
    action = ActionContext(action_id, at, *proposer)
    row |= {"decided_at": at, "decided_by": decided_by, "approved_by_kind": "human", "updated_at": at}
    try:
        # A plan only reads: what it refuses has changed nothing.
        plan = await capability.plan(ledger, capability.validate(row["payload"]), action)
    except BaobabError as error:
        row |= {"status": "failed", "result": {"error": {"code": error.code, "message": error.message}}}
        ledger.count(measure_action(row) - size)
        await _update(ledger, row)
        ledger.note_decided(row)
        return row
    written_bytes = ledger.stamp_rows(plan.changes)
    if not plan.frees:
        # Not as a failure: it still waits, and can be approved once there is room.
        ledger.require_room(written_bytes)
    row |= {"status": "executed", "result": plan.result, "executed_at": at, "links": plan.links or None}
    row["from_strangers"] |= plan.is_marked(is_done=True)
    ledger.count(measure_action(row) - size)
    await _update(ledger, row)
    await _carry_out(ledger, row, plan)
    return row


async def reject(ledger: Ledger, action_id: str, decided_by: str, reason: str | None) -> Row:
    """Rejects an action that waits."""
    row, at = await _require_proposed(ledger, action_id), ledger.stamp()
    row |= {"status": "rejected", "decided_at": at, "decided_by": decided_by}
    row |= {"reject_reason": reason, "updated_at": at}
    await _update(ledger, row)
    ledger.note_decided(row)
    await settle_conflicts(ledger, action_id, "rejected", decided_by)
    return row


async def _carry_out(ledger: Ledger, row: Row, plan: Plan) -> None:
    await ledger.apply(row["id"], plan.changes)
    await forbid_waiting(ledger, plan.changes)
    await _mark_reverted(ledger, row, plan.reverted_ids)
    if plan.traces is not None:
        await erase_traces(ledger, plan.traces)
    ledger.note_decided(row)
    await deliver_executed(ledger, row)


async def _mark_reverted(ledger: Ledger, row: Row, action_ids: Sequence[str]) -> None:
    """Notes that an action has undone others."""
    if not action_ids:
        return
    in_organisation = _ledger.c.organisation_id == ledger.organisation_id
    values = {"status": "reverted", "reverted_by_action_id": row["id"], "updated_at": row["updated_at"]}
    for start in range(0, len(action_ids), _AT_ONCE):
        some_ids = action_ids[start : start + _AT_ONCE]
        await ledger.unit.execute(update(_ledger).where(in_organisation, _ledger.c.id.in_(some_ids)).values(values))
    for action_id in action_ids:
        ledger.tell(_ledger, "update", action_id)


async def _require_proposed(ledger: Ledger, action_id: str) -> Row:
    row = await ledger.get(_ledger, action_id)
    if row is None:
        raise ActionNotFound
    if row["status"] != "proposed":
        raise WrongStatus(f"The action is already {row['status']}.", details={"status": row["status"]})
    return row


async def _update(ledger: Ledger, row: Row) -> None:
    """Writes a row of the ledger whose status has changed."""
    names: tuple[str, ...] = ("status", "result", "links", "from_strangers", "executed_at")
    names += ("decided_at", "decided_by", "approved_by_kind", "reject_reason", "updated_at")
    conditions = (_ledger.c.organisation_id == ledger.organisation_id, _ledger.c.id == row["id"])
    values = {name: row[name] for name in names}
    await ledger.unit.execute(update(_ledger).where(*conditions).values(values))
    ledger.tell(_ledger, "update", row["id"])


async def _find_by_key(ledger: Ledger, key: str) -> Any:
    conditions = (_ledger.c.organisation_id == ledger.organisation_id, _ledger.c.idempotency_key == key)
    return (await ledger.unit.execute(select(_ledger).where(*conditions))).first()


def _replay(row: Any, proposer: Proposer) -> Proposal:
    """Returns the answer to a proposal whose key was used before: what became of the action since."""
    result = row.result
    if row.from_strangers and proposer.kind == "agent" and result and "before" in result:
        result = {**result, "before": None}
    verdict: VerdictAnswer = {"result": row.verdict, "reason": row.verdict_reason, "conflicts": []}
    if row.status == "rejected":
        verdict |= {"result": "rejected", "reason": row.reject_reason or "a person has rejected it"}
    return {
        "action_id": row.id,
        "verdict": verdict,
        "requires_approval": row.status == "proposed",
        "result": result,
        "replay": True,
    }
