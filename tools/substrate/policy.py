"""The policy: what is done at once, and what waits for a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import bindparam, func, insert, select, update

from baobab.tools.substrate import tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.capabilities.capability import Capability
from baobab.tools.substrate.capabilities.fields import MOST_PRINCIPLES
from baobab.tools.substrate.errors import ForbiddenByPrinciple, HeldByPrinciple, SkipNotAllowed
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.rows import Row
from baobab.tools.substrate.schemas import PolicyConflictBrief

VerdictWord = Literal["auto_approved", "auto_approved_yolo", "requires_approval", "rejected"]
_WINDOWS = {"max_per_week": timedelta(days=7), "max_per_day": timedelta(days=1)}
_decisions = tables.decisions.c
# Built once, since that takes longer than to run it.
_PRINCIPLES = (
    select(_decisions.id, _decisions.title, _decisions.applies_to, _decisions.constraint_spec)
    .where(
        _decisions.organisation_id == bindparam("of_organisation"),
        tables.IS_PRINCIPLE,
        _decisions.status == "active",
        _decisions.constraint_spec.is_not(None),
    )
    .order_by(_decisions.id)
    .limit(MOST_PRINCIPLES)
)


@dataclass(frozen=True, slots=True)
class Verdict:
    result: VerdictWord
    reason: str
    conflicts: tuple[PolicyConflictBrief, ...] = ()

    @property
    def is_approved(self) -> bool:
        return self.result != "requires_approval"


async def judge(
    ledger: Ledger,
    capability: Capability,
    payload: Mapping[str, Any],
    proposer: Proposer,
    at: datetime,
    *,
    skip_approval: bool = False,
    agents_wait: str | None = None,
) -> Verdict:
    """Says whether an action is done at once. A principle comes before the owner's word, and that before yolo mode.

    agents_wait: why its plan asks for a person if an agent proposes it.
    """
    if skip_approval and not proposer.may_skip:
        raise SkipNotAllowed
    conflicts = await _find_conflicts(ledger, capability.name, payload, at)
    if conflicts:
        return Verdict("requires_approval", f"principle: {conflicts[0]['message']}"[:500], tuple(conflicts))
    if skip_approval:
        return Verdict("auto_approved", "an owner has skipped the approval")
    if capability.has_side_effect:
        agents_wait = "what agents send to the outside waits for a person"
    if proposer.kind == "agent" and agents_wait is not None:
        return Verdict("requires_approval", agents_wait)
    yolo: bool = ledger.settings.yolo_mode
    if yolo and capability.yolo_eligible and proposer.kind == "human":
        return Verdict("auto_approved_yolo", "yolo mode is on")
    if capability.needs_approval:
        return Verdict("requires_approval", "capability default = approval_required")
    return Verdict("auto_approved", "capability default = auto")


async def require_allowed(ledger: Ledger, counts: Mapping[str, int], at: datetime) -> None:
    """Raises HeldByPrinciple where a principle speaks against so many actions of some capabilities at once."""
    for name, count in counts.items():
        conflicts = await _find_conflicts(ledger, name, {}, at, count) if count else []
        if conflicts:
            message = f"The principle {conflicts[0]['message']}."
            raise HeldByPrinciple(message, details={"principle_ids": [each["principle_id"] for each in conflicts]})


async def _find_conflicts(
    ledger: Ledger, capability: str, payload: Mapping[str, Any], at: datetime, count: int = 1
) -> list[PolicyConflictBrief]:
    """Returns the principles in force that speak against an action, or against so many."""
    conflicts: list[PolicyConflictBrief] = []
    if not ledger.settings.has_principles:
        return conflicts
    for principle in await ledger.unit.execute(_PRINCIPLES, {"of_organisation": ledger.organisation_id}):
        applies_to, constraint = principle.applies_to, principle.constraint_spec
        role = applies_to.get("target_role")
        if applies_to["capability"] not in ("*", capability) or (role and payload.get("target_role") != role):
            continue
        message = await _find_fault(ledger, capability, applies_to, constraint, at, count)
        if message is not None:
            conflicts.append(_build_conflict(ledger, principle.id, principle.title, constraint["type"], message))
    return conflicts


def _build_conflict(ledger: Ledger, principle_id: str, title: str, type_: str, message: str) -> PolicyConflictBrief:
    return {
        "conflict_id": ledger.new_id("con"),
        "principle_id": principle_id,
        "type": type_,
        "message": f"“{title[:200]}”: {message}",
    }


async def _find_fault(
    ledger: Ledger,
    capability: str,
    applies_to: Mapping[str, Any],
    constraint: Mapping[str, Any],
    at: datetime,
    count: int,
) -> str | None:
    """Returns why a principle that applies to an action forbids it or makes it wait; None if it does neither."""
    window = _WINDOWS.get(constraint["type"])
    if window is None:
        word = "forbids" if constraint["type"] == "forbid" else "asks for the approval of"
        return f"{word} {capability}"
    columns, most = tables.action_ledger.c, constraint["params"]["n"]
    query = select(func.count()).where(
        columns.organisation_id == ledger.organisation_id,
        columns.status == "executed",
        columns.executed_at > at - window,
    )
    if applies_to["capability"] != "*":
        query = query.where(columns.capability == capability)
    role = applies_to.get("target_role")
    if role is not None:
        query = query.where(columns.payload["target_role"].as_string() == role)
    earlier_count = (await ledger.unit.execute(query)).scalar_one()
    period = "week" if constraint["type"] == "max_per_week" else "day"
    return f"at most {most} in a {period}, and {earlier_count} were done" if earlier_count + count > most else None


async def forbid_waiting(ledger: Ledger, changes: Sequence[RowChange]) -> None:
    """Opens a conflict for each waiting action that a principle forbids which has just come into force, so that it
    can be approved no more than if the principle had been there first.
    """
    for change in changes:
        row = change.after
        if change.table is tables.decisions and row is not None and _forbids(row) and _is_new_to_policy(change):
            await _forbid_waiting(ledger, row)


def _forbids(row: Row) -> bool:
    return row["status"] == "active" and (row["constraint_spec"] or {}).get("type") == "forbid"


def _is_new_to_policy(change: RowChange) -> bool:
    names = ("status", "applies_to", "constraint_spec")
    before, after = change.before, change.after
    return before is None or after is None or any(before[name] != after[name] for name in names)


async def _forbid_waiting(ledger: Ledger, principle: Row) -> None:
    actions, conflict_table, applies_to = tables.action_ledger.c, tables.policy_conflicts, principle["applies_to"]
    waiting = [actions.organisation_id == ledger.organisation_id, actions.status == "proposed", tables.IS_NOT_EXECUTED]
    if applies_to["capability"] != "*":
        waiting.append(actions.capability == applies_to["capability"])
    if applies_to.get("target_role"):
        waiting.append(actions.payload["target_role"].as_string() == applies_to["target_role"])
    of_principle = (
        conflict_table.c.organisation_id == ledger.organisation_id,
        conflict_table.c.principle_id == principle["id"],
    )
    # Where it was amended, what it asked to approve before is forbidden now.
    stricter: Row = {"constraint_type": "forbid", "updated_at": ledger.stamp()}
    stricter["message"] = f"“{principle['title'][:200]}”: forbids it since it was amended"
    of_waiting = conflict_table.c.action_id.in_(select(actions.id).where(*waiting))
    await ledger.unit.execute(
        update(conflict_table).where(*of_principle, conflict_table.c.status == "open", of_waiting).values(stricter)
    )
    judged_actions = select(conflict_table.c.action_id).where(
        *of_principle, conflict_table.c.constraint_type == "forbid"
    )
    query = select(actions.id, actions.capability).where(*waiting, actions.id.not_in(judged_actions))
    conflicts = {}
    # Not sorted by SQLite, which would go through all actions in their order instead.
    for action in sorted(await ledger.unit.execute(query), key=lambda action: action.id):
        message = f"forbids {action.capability}"
        conflicts[action.id] = [_build_conflict(ledger, principle["id"], principle["title"], "forbid", message)]
    await record_conflicts(ledger, conflicts)


async def record_conflicts(ledger: Ledger, by_action: Mapping[str, Sequence[PolicyConflictBrief]]) -> None:
    """Keeps what speaks against actions that wait."""
    now = ledger.stamp()
    rows = [
        {
            "organisation_id": ledger.organisation_id,
            "id": conflict["conflict_id"],
            "action_id": action_id,
            "principle_id": conflict["principle_id"],
            "constraint_type": conflict["type"],
            "message": conflict["message"][:500],
            "status": "open",
            "created_at": now,
            "updated_at": now,
        }
        for action_id, conflicts in by_action.items()
        for conflict in conflicts
    ]
    if rows:
        await ledger.unit.execute(insert(tables.policy_conflicts), rows)


async def settle_conflicts(ledger: Ledger, action_id: str, resolution: str, decided_by: str) -> None:
    """Closes the conflicts of an action that is decided. ForbiddenByPrinciple while one that forbids it is open."""
    columns = tables.policy_conflicts.c
    conditions = (
        columns.organisation_id == ledger.organisation_id,
        columns.action_id == action_id,
        columns.status == "open",
    )
    if resolution == "approved":
        query = select(columns.id).where(*conditions, columns.constraint_type == "forbid").order_by(columns.id)
        forbidding = list((await ledger.unit.execute(query)).scalars())
        if forbidding:
            raise ForbiddenByPrinciple(details={"conflict_ids": forbidding})
    now = ledger.stamp()
    changes: Row = {"status": "resolved", "resolution": resolution, "resolved_by": decided_by}
    changes |= {"resolved_at": now, "updated_at": now}
    await ledger.unit.execute(update(tables.policy_conflicts).where(*conditions).values(changes))


async def resolve_conflict(ledger: Ledger, row: Row, resolution: str, reason: str | None, decided_by: str) -> Row:
    """Closes one conflict as a person has decided."""
    now = ledger.stamp()
    values: Row = {"status": "resolved", "resolution": resolution, "reason": reason, "resolved_by": decided_by}
    values |= {"resolved_at": now, "updated_at": now}
    columns = tables.policy_conflicts.c
    conditions = (columns.organisation_id == ledger.organisation_id, columns.id == row["id"])
    await ledger.unit.execute(update(tables.policy_conflicts).where(*conditions).values(values))
    return {**row, **values}
