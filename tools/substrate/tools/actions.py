"""/actions: propose, list, read, approve and reject actions."""

import json
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from pydantic_core import to_json
from sqlalchemy import select

from baobab.tools.core import Call, Guard, JsonObject, Mcp, NotSecret, Rest, Text
from baobab.tools.core.auth import proposers
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.types import Moment
from baobab.tools.substrate import proposals, tables
from baobab.tools.substrate.access import CALLERS, DECIDERS, organisation_of, proposer_of, require_person
from baobab.tools.substrate.capabilities import fields
from baobab.tools.substrate.errors import (
    OF_CAPABILITIES,
    ActionNotFound,
    AgentsDoNotDecide,
    InvalidPayload,
    MemoryFull,
    SkipNotAllowed,
    UnknownCapability,
    WrongStatus,
)
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.schemas import Action, Actions, CapabilityName, Proposal
from baobab.tools.substrate.toolset import substrate

_rows = tables.action_ledger
IdempotencyKey = Annotated[str, Text(200, min_length=1), NotSecret("a name of the caller's own")]
ActionId = Annotated[fields.ActionId, Field(description="The action.", examples=["act_01KAVF3T9GQZ8RT3Q0M5W9YB7C"])]
Status = Literal["proposed", "executed", "rejected", "failed", "reverted"]
TriggerContext = Annotated[str, Text(2000)]
_FROM_HEADERS = {"trigger_context": "x-platform-trigger-context"}
_AS_ACTION = Rest(further_names={"action_type": "capability"})
_MOST_BYTES = 2**20
"""The most bytes of one page of actions."""


@substrate.tool(
    "POST /actions/propose",
    access=CALLERS,
    effect="write",
    raises=(UnknownCapability, InvalidPayload, SkipNotAllowed, *OF_CAPABILITIES),
    rest=Rest(
        examples={
            "capability": "record_commitment",
            "payload": {"description": "Send Ada the contract by Friday", "status": "confirmed"},
        },
        from_headers=_FROM_HEADERS,
    ),
    mcp=Mcp(for_linked_apps=True, start="narrow", from_headers=_FROM_HEADERS),
    guard=Guard(overwrites=True),
)
async def substrate_propose(
    call: Call,
    capability: CapabilityName,
    payload: JsonObject,
    idempotency_key: IdempotencyKey | None = None,
    dangerously_skip_approval: bool = False,
    trigger_context: TriggerContext | None = None,
) -> Proposal:
    """Propose an action: record a decision, change an entity, undo something. It is done at once or waits for a person.

    capability: what to do, such as `record_decision`; op:substrate_capabilities lists all with their payloads.
    payload: what the capability needs, such as `{"title": "We ship on Mondays", "kind": "operational"}` to record a
      decision. One that does not fit is refused with its schema.
    idempotency_key: a second proposal with the same key answers what became of the first, however late it comes.
    dangerously_skip_approval: do it without an approval. Only for owners who are signed in; principles still apply.
    trigger_context: what led to it, as JSON or text; kept with the action, and for people only.
    """
    return await proposals.propose(
        call.unit,
        call.services,
        organisation_of(call),
        proposer_of(call, _read_context(trigger_context)),
        capability,
        payload,
        idempotency_key=idempotency_key,
        skip_approval=dangerously_skip_approval,
    )


@substrate.tool(
    "GET /actions",
    access=CALLERS,
    effect="read",
    taints=True,
    rest=_AS_ACTION,
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_actions(
    call: Call,
    status: Status | None = None,
    capability: CapabilityName | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
    before: Moment | None = None,
    source_app_id: Annotated[str | None, Text(36)] = None,
    source_rule_id: Annotated[str | None, Text(64)] = None,
) -> Actions:
    """List actions, the latest proposed first.

    status: `proposed` for those that wait.
    capability: only those of this capability.
    limit: the most actions; fewer if they are large.
    before: only those proposed before this moment; the `next_before` of the previous page.
    source_app_id: only those that this app proposed.
    source_rule_id: only those that this attention rule proposed.
    """
    query = select(_rows).where(_rows.c.organisation_id == organisation_of(call))
    filters = {"status": status, "capability": capability}
    filters |= {"source_app_id": source_app_id, "source_rule_id": source_rule_id}
    for name, value in filters.items():
        if value is not None:
            query = query.where(_rows.c[name] == value)
    if status not in (None, "executed"):
        query = query.where(tables.IS_NOT_EXECUTED)
    whole_query = query
    if before is not None:
        query = query.where(_rows.c.proposed_at < before)
    rows: Any = (await call.execute(query.order_by(_rows.c.proposed_at.desc()).limit(limit + 1))).mappings().all()
    actions: list[Action] = []
    size = 0
    for row in rows[:limit]:
        action = render_action(row)
        size += len(to_json(action))
        if actions and size > _MOST_BYTES:
            break
        actions.append(action)
    is_all = before is None and len(rows) == len(actions)
    await count_list(call, call.execute, whole_query, is_all=is_all)
    next_before = actions[-1]["proposed_at"] if len(rows) > len(actions) else None
    return {"actions": actions, "next_before": next_before}


@substrate.tool(
    "GET /actions/{action_id}",
    access=CALLERS,
    effect="read",
    raises=(ActionNotFound,),
    taints=True,
    rest=_AS_ACTION,
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_action(call: Call, action_id: ActionId) -> Action:
    """Read one action: what was proposed, what was decided and what came of it."""
    conditions = (_rows.c.organisation_id == organisation_of(call), _rows.c.id == action_id)
    row: Any = (await call.execute(select(_rows).where(*conditions))).mappings().first()
    if row is None:
        raise ActionNotFound
    return render_action(row)


@substrate.tool(
    "POST /actions/{action_id}/approve",
    access=DECIDERS,
    effect="write",
    raises=(ActionNotFound, WrongStatus, AgentsDoNotDecide, MemoryFull),
    rest=_AS_ACTION,
    guard=Guard(overwrites=True),
)
async def substrate_approve(call: Call, action_id: ActionId) -> Action:
    """Approve an action that waits: it is done at once. Only a person can call it.

    If it can no longer be done, its status becomes `failed`, and `result.error` says why.
    """
    require_person(call)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        return render_action(await proposals.approve(ledger, action_id, proposers.proposer_name(call.caller)))


@substrate.tool(
    "POST /actions/{action_id}/reject",
    access=DECIDERS,
    effect="write",
    raises=(ActionNotFound, WrongStatus, AgentsDoNotDecide),
    rest=_AS_ACTION,
)
async def substrate_reject(call: Call, action_id: ActionId, reason: Annotated[str | None, Text(2000)] = None) -> Action:
    """Reject an action that waits: it is never done. Only a person can call it.

    reason: kept with the action.
    """
    require_person(call)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        row = await proposals.reject(ledger, action_id, proposers.proposer_name(call.caller), reason)
        return render_action(row)


def render_action(row: Any) -> Action:
    """Returns an action as callers read it."""
    fields_shown = {name: row[name] for name in Action.__annotations__ if name != "requires_approval_reason"}
    waits = row["verdict"] == "requires_approval"
    return cast(Action, {**fields_shown, "requires_approval_reason": row["verdict_reason"] if waits else None})


def _read_context(text: str | None) -> dict[str, Any] | None:
    """Returns what led to a proposal as an object: the JSON object that was sent, or `{"text": ...}`."""
    if text is None:
        return None
    try:
        context = json.loads(text)
    except (ValueError, RecursionError):
        return {"text": text}
    return context if isinstance(context, dict) else {"text": text}
