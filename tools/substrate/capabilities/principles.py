"""Principles: decisions that the policy holds actions to."""

from sqlalchemy import func, select

from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.capability import (
    CAPABILITIES,
    ActionContext,
    Plan,
    capability,
    changed_row,
)
from baobab.tools.substrate.capabilities.decisions import build_decision
from baobab.tools.substrate.capabilities.fields import MOST_PRINCIPLES
from baobab.tools.substrate.capabilities.schemas import AmendPrinciple, AppliesTo, RecordPrinciple, RetirePrinciple
from baobab.tools.substrate.errors import InvalidPayload, PrincipleNotFound, UnknownCapability
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.rows import Row

_decisions = tables.decisions


@capability(needs_approval=True)
async def record_principle(ledger: Ledger, payload: RecordPrinciple, action: ActionContext) -> Plan:
    """Record a principle: what the actions of a capability (or of all, `*`) are held to from now on."""
    _check_capability(payload.applies_to)
    await require_room(ledger, 1)
    row = await build_decision(ledger, action, kind="principle", **payload.model_dump(exclude_none=True))
    return Plan({"principle_id": row["id"]}, [RowChange(_decisions, row["id"], None, row)])


@capability(needs_approval=True)
async def amend_principle(ledger: Ledger, payload: AmendPrinciple, action: ActionContext) -> Plan:
    """Change a principle that is in force."""
    row = await require_principle(ledger, payload.principle_id)
    changing = payload.model_dump(exclude_none=True, exclude={"principle_id"})
    if not changing:
        raise InvalidPayload("payload of amend_principle: there is nothing to change.")
    if payload.applies_to is not None:
        _check_capability(payload.applies_to)
    after = changed_row(action, row, **changing)
    return Plan({"principle_id": row["id"]}, [RowChange(_decisions, row["id"], row, after)])


@capability(needs_approval=True)
async def retire_principle(ledger: Ledger, payload: RetirePrinciple, action: ActionContext) -> Plan:
    """Retire a principle: nothing is held to it any more."""
    row = await require_principle(ledger, payload.principle_id)
    after = changed_row(action, row, status="expired", retire_reason=payload.reason)
    return Plan({"principle_id": row["id"]}, [RowChange(_decisions, row["id"], row, after)])


async def require_room(ledger: Ledger, new_count: int) -> None:
    """Raises InvalidPayload where there would be more principles in force than the policy reads."""
    columns = _decisions.c
    query = select(func.count()).where(
        columns.organisation_id == ledger.organisation_id,
        tables.IS_PRINCIPLE,
        columns.status == "active",
        columns.constraint_spec.is_not(None),
    )
    if (await ledger.unit.execute(query)).scalar_one() + new_count > MOST_PRINCIPLES:
        raise InvalidPayload(f"There are at most {MOST_PRINCIPLES} principles in force; retire one first.")


async def require_principle(ledger: Ledger, principle_id: str) -> Row:
    row = await ledger.get(_decisions, principle_id)
    if row is None or row["kind"] != "principle" or row["status"] != "active":
        raise PrincipleNotFound
    return row


def _check_capability(applies_to: AppliesTo) -> None:
    if applies_to.capability != "*" and applies_to.capability not in CAPABILITIES:
        raise UnknownCapability(details={"capabilities": sorted(CAPABILITIES)})
