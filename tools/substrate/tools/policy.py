"""/capabilities, /principles and /policy-conflicts: what can be proposed, and what speaks against it."""

from typing import Annotated, Any, Literal, cast

from pydantic import Field
from sqlalchemy import select

from baobab.tools.core import Call, Guard, Mcp, Rest, Text
from baobab.tools.core.auth import proposers
from baobab.tools.substrate import proposals, tables
from baobab.tools.substrate.access import CALLERS, DECIDERS, organisation_of, require_person
from baobab.tools.substrate.capabilities import fields
from baobab.tools.substrate.capabilities.capability import CAPABILITIES, describe_payload
from baobab.tools.substrate.errors import AgentsDoNotDecide, ConflictNotFound, PrincipleNotFound, WrongStatus
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.policy import resolve_conflict
from baobab.tools.substrate.schemas import Capabilities, PolicyConflict, PolicyConflicts, Principle, Principles
from baobab.tools.substrate.toolset import substrate

_decisions, _conflicts = tables.decisions.c, tables.policy_conflicts.c
PrincipleId = Annotated[fields.DecisionId, Field(description="The principle, which is a decision.")]
ActionId = Annotated[fields.ActionId, Field(description="An action.")]
ConflictId = Annotated[str, Text(30, pattern=r"^con_[0-9A-Z]{26}$"), Field(description="The policy conflict.")]


@substrate.tool(
    "GET /capabilities",
    access=CALLERS,
    effect="read",
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_capabilities(call: Call) -> Capabilities:
    """List what can be proposed, with the schema of each payload and whether it is done at once."""
    del call
    return {
        "capabilities": [
            {
                "name": capability.name,
                "description": capability.summary,
                "default_policy": "approval_required" if capability.needs_approval else "auto",
                "reversible": capability.is_reversible,
                "yolo_eligible": capability.yolo_eligible,
                "payload_schema": describe_payload(capability.payload),
            }
            for _, capability in sorted(CAPABILITIES.items())
        ]
    }


@substrate.tool(
    "GET /principles",
    access=CALLERS,
    effect="read",
    taints=True,
    mcp=Mcp(for_linked_apps=True),
)
async def substrate_principles(
    call: Call,
    status: Literal["active", "expired", "superseded", "reversed"] | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
) -> Principles:
    """List principles, the latest first.

    status: `active` for those that hold.
    limit: how many at most.
    """
    query = select(tables.decisions).where(_decisions.organisation_id == organisation_of(call))
    query = query.where(tables.IS_PRINCIPLE)
    # By the id itself, SQLite would go through all decisions of the organisation in their order, instead of sorting the
    # principles.
    order: Any = _decisions.id.concat("")
    if status is not None:
        query, order = query.where(_decisions.status == status), _decisions.id
    rows = (await call.execute(query.order_by(order.desc()).limit(limit))).mappings()
    return {"principles": [_render_principle(row) for row in rows]}


@substrate.tool(
    "GET /principles/{principle_id}",
    access=CALLERS,
    effect="read",
    raises=(PrincipleNotFound,),
    taints=True,
    mcp=Mcp(for_linked_apps=True),
)
async def substrate_principle(call: Call, principle_id: PrincipleId) -> Principle:
    """Read one principle."""
    conditions = (_decisions.organisation_id == organisation_of(call), _decisions.id == principle_id)
    query = select(tables.decisions).where(*conditions, tables.IS_PRINCIPLE)
    row = (await call.execute(query)).mappings().first()
    if row is None:
        raise PrincipleNotFound
    return _render_principle(row)


@substrate.tool(
    "GET /policy-conflicts",
    access=CALLERS,
    effect="read",
    taints=True,
)
async def substrate_policy_conflicts(
    call: Call,
    status: Literal["open", "resolved"] | None = None,
    action_id: ActionId | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
) -> PolicyConflicts:
    """List actions that wait because they conflict with a principle, the latest first.

    status: `open` for those that nobody has decided.
    action_id: only those of this action.
    limit: how many at most.
    """
    query = select(tables.policy_conflicts).where(_conflicts.organisation_id == organisation_of(call))
    if status is not None:
        query = query.where(_conflicts.status == status)
    if action_id is not None:
        query = query.where(_conflicts.action_id == action_id)
    rows = (await call.execute(query.order_by(_conflicts.id.desc()).limit(limit))).mappings()
    return {"conflicts": [_render_conflict(row) for row in rows]}


@substrate.tool(
    "GET /policy-conflicts/{conflict_id}",
    access=CALLERS,
    effect="read",
    raises=(ConflictNotFound,),
    taints=True,
)
async def substrate_policy_conflict(call: Call, conflict_id: ConflictId) -> PolicyConflict:
    """Read one policy conflict."""
    conditions = (_conflicts.organisation_id == organisation_of(call), _conflicts.id == conflict_id)
    row = (await call.execute(select(tables.policy_conflicts).where(*conditions))).mappings().first()
    if row is None:
        raise ConflictNotFound
    return _render_conflict(row)


@substrate.tool(
    "POST /policy-conflicts/{conflict_id}/resolve",
    access=DECIDERS,
    effect="write",
    raises=(ConflictNotFound, WrongStatus, AgentsDoNotDecide),
    rest=Rest(examples={"resolution": "allow", "reason": "Agreed on the phone"}),
    guard=Guard(overwrites=True),
)
async def substrate_resolve_policy_conflict(
    call: Call,
    conflict_id: ConflictId,
    resolution: Literal["allow", "uphold"],
    reason: Annotated[str | None, Text(2000)] = None,
) -> PolicyConflict:
    """Decide about a policy conflict. Only a person can call it.

    resolution: `allow` lets the action be approved this once; `uphold` rejects it.
    reason: kept with the conflict.
    """
    require_person(call)
    decided_by = proposers.proposer_name(call.caller)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        row = await ledger.get(tables.policy_conflicts, conflict_id)
        if row is None:
            raise ConflictNotFound
        if row["status"] != "open":
            raise WrongStatus("The conflict is resolved.", details={"status": row["status"]})
        row = await resolve_conflict(ledger, row, resolution, reason, decided_by)
        if resolution == "uphold":
            await proposals.reject(ledger, row["action_id"], decided_by, reason)
    return _render_conflict(row)


def _render_principle(row: Any) -> Principle:
    return cast(Principle, {name: row[name] for name in Principle.__annotations__})


def _render_conflict(row: Any) -> PolicyConflict:
    names = [name for name in PolicyConflict.__annotations__ if name != "type"]
    return cast(PolicyConflict, {**{name: row[name] for name in names}, "type": row["constraint_type"]})
