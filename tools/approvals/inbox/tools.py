"""The tools of the inbox, which only the console calls: decisions that can be taken back, and snoozes."""

from datetime import timedelta
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from sqlalchemy import delete, insert, select, update

from baobab.runtime.agents.edits import edit_call
from baobab.storage.sql.tables import build_upsert
from baobab.tools.approvals.access import PEOPLE
from baobab.tools.approvals.consents import AnnouncedCall
from baobab.tools.approvals.errors import ApprovalNotFound, CallOutdated, OnlyRunsAreEdited
from baobab.tools.approvals.inbox.errors import AlreadyHeld, CannotSnooze, MustBeConfirmed, TooLateToTakeBack
from baobab.tools.approvals.inbox.holding import HOLD, JOB, job_id_of, list_held, seal_decision
from baobab.tools.approvals.inbox.schemas import (
    DecisionMade,
    HeldDecision,
    InboxState,
    Snoozed,
    TakenBack,
    WaitingPlace,
    WaitingPlaces,
)
from baobab.tools.approvals.inbox.tables import approval_snoozes, held_decisions
from baobab.tools.approvals.naming import ApprovalLabels
from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.tables import NOTICE
from baobab.tools.approvals.tables import approvals as approval_rows
from baobab.tools.approvals.toolset import approvals
from baobab.tools.approvals.visibility import find_approval, select_visible
from baobab.tools.core import Audit, BadRequest, Call, JsonObject, Mcp, Text, Uuid
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.deciders import Decider, NeedsAnother, NotAnApprover, NotYoursToDecide, PendingDecision
from baobab.tools.core.auth.membership import decider_of
from baobab.tools.core.guard.approvals import AlreadyDecided, EditsTakeOne, WouldFail
from baobab.tools.core.guard.proposals import Decisions

SOON = timedelta(minutes=1)
"""A decision about a call that expires within this time counts at once: it must not expire while it is held."""
_RECENT = timedelta(hours=1)
_LEAST_LEFT = timedelta(hours=1)
"""How long before it expires a snoozed call is back."""
ApprovalId = Annotated[str, Text(200, min_length=1), Field(description="The approval, by its id.")]
HeldIds = Annotated[list[Uuid], Field(min_length=1, max_length=100)]
ApprovalIds = Annotated[list[ApprovalId], Field(min_length=1, max_length=100)]
Minutes = Annotated[int, Field(ge=0, le=1440)]


@approvals.tool(
    access=PEOPLE,
    effect="write",
    raises=(
        ApprovalNotFound,
        NotYoursToDecide,
        NotAnApprover,
        NeedsAnother,
        AlreadyDecided,
        AlreadyHeld,
        MustBeConfirmed,
        CallOutdated,
        proposers.CallerUnreadable,
        EditsTakeOne,
        OnlyRunsAreEdited,
        WouldFail,
        BadRequest,
    ),
    audit=Audit("approval.hold", resource="approval"),
    mcp=Mcp(offered=False),
)
async def approvals_hold(
    call: Call,
    approval_id: ApprovalId,
    decision: Literal["approve", "reject"],
    reason: Annotated[str, Text(1000)] | None = None,
    arguments: JsonObject | None = None,
    data: JsonObject | None = None,
    even_if_failing: bool = False,
    confirmed: bool = False,
) -> DecisionMade:
    """Decide about a waiting call, in ten seconds: until then the decision can be taken back.

    All that could refuse the decision is checked now, and again when it is due. The approval of a call that deletes
    something, leaves the server or uses the app's right must be confirmed, and counts at once. So does each decision
    about a call that expires within a minute.

    decision: `approve` or `reject`.
    reason: of a rejection, shown to whoever proposed the call.
    arguments: as for op:approvals_approve.
    data: as for op:approvals_approve.
    even_if_failing: as for op:approvals_approve.
    confirmed: whether the person has confirmed an approval that counts at once.
    """
    given_fields: dict[str, Any] = {"reason": reason} if decision == "reject" and reason else {}
    destroys = False
    if decision == "approve":
        given_fields = {name: value for name, value in (("arguments", arguments), ("data", data)) if value is not None}
        destroys = await _foresee(call, approval_id, arguments, data, is_needed=not even_if_failing)
        given_fields |= {"even_if_failing": True} if even_if_failing else {}
    row = await find_approval(call, approval_id)
    call.audit.resource_id, call.audit.organisation_id, call.audit.app_id = row.id, row.organisation_id, row.app_id
    call.audit.data |= {"tool": row.tool, "decision": decision}
    if proposers.proposer_name(call.caller) == row.proposer:
        raise NotYoursToDecide
    decider, edit = await decider_of(call, row.organisation_id), None
    if arguments is not None or data is not None:
        if row.run_id is None:
            raise OnlyRunsAreEdited
        decider.require(PendingDecision.of_approval(row))
        edit = await edit_call(call, row, decider, arguments, data)
    status: Literal["approved", "rejected"] = "approved" if decision == "approve" else "rejected"
    await call.services.part(Decisions).require_decidable(call, row, decider, status, edit)
    counts_at_once = False
    if status == "approved":
        announced_call = AnnouncedCall.of(call.registry, service_of(call.services).texts.seals, row)
        write = announced_call.as_row if announced_call is not None and announced_call.may_consent(decider) else None
        counts_at_once = destroys or any(_is_final(each) for each in (row, write) if each is not None)
        if counts_at_once and not confirmed:
            raise MustBeConfirmed
    if counts_at_once or row.expires_at - call.now <= SOON:
        # All that could fail was looked at above.
        sure = {"even_if_failing": True} if status == "approved" else {}
        await call.invoke(f"approvals_{decision}", approval_id=row.id, **{**given_fields, **sure})
        return {"held": None}
    return {"held": await _insert_held(call, row, status, given_fields)}


def _is_final(row: Any) -> bool:
    """Returns whether what the call of a row does can never be undone here."""
    return row.effect in ("destructive", "external") or row.app_right is not None


async def _foresee(
    call: Call, approval_id: str, arguments: JsonObject | None, data: JsonObject | None, *, is_needed: bool
) -> bool:
    """Returns whether the call would delete something now. Raises WouldFail for one that would fail.

    is_needed: False if the person approves it even if it fails.
    """
    async with call.reading_apart() as reading:
        row = await find_approval(reading, approval_id)
        decider = await decider_of(reading, row.organisation_id)
        is_editable = (arguments is None and data is None) or row.run_id is not None
        is_pending = row.status == "pending" and row.expires_at > call.now
        if not is_pending or not is_editable or not decider.may(PendingDecision.of_approval(row)):
            # Refused later.
            return False
        try:
            return await call.services.part(Decisions).require_success(reading, row, decider, arguments, data)
        except WouldFail:
            if is_needed:
                raise
            tool = call.registry.tools.get(row.tool)
            return tool is not None and tool.destructive_when is not None


async def _insert_held(call: Call, row: Any, status: str, given_fields: dict[str, Any]) -> HeldDecision:
    services, held_id, context = call.services, call.services.ids.uuid(), call.context
    origin = {"request_id": context.request_id, "ip": context.ip, "user_agent": context.user_agent}
    values = {
        "id": held_id,
        "approval_id": row.id,
        "organisation_id": row.organisation_id,
        "account_id": call.account.account_id,
        "caller": proposers.encode_caller(call.caller),
        "status": status,
        "decision": seal_decision(services.vault, held_id, {**given_fields, "origin": origin}),
        "state": "held",
        "created_at": call.now,
        "due_at": call.now + HOLD,
    }
    inserting = build_upsert(call.unit.database.dialect, held_decisions).on_conflict_do_nothing()
    if not (await call.execute(inserting.values(values))).rowcount:
        raise AlreadyHeld
    await call.execute(_unsnooze(call, [row.id]))
    await services.jobs.enqueue(
        call.unit,
        JOB,
        {"held_id": held_id},
        job_id=job_id_of(held_id),
        delay=HOLD.total_seconds(),
        tenant=row.organisation_id,
    )
    # The person's other pages no longer show the call.
    await services.notices.publish(call.unit, NOTICE, row.organisation_id)
    return _render({**values, "problem": None, "finished_at": None})


@approvals.tool(
    access=PEOPLE,
    effect="write",
    raises=(ApprovalNotFound, TooLateToTakeBack),
    audit=Audit("approval.take_back", resource="approval"),
    mcp=Mcp(offered=False),
)
async def approvals_take_back(call: Call, held_ids: HeldIds) -> TakenBack:
    """Take back decisions that are held: they never count, and the calls wait as before.

    Raises TooLateToTakeBack if all of them count already; else the answer says which do.

    held_ids: the decisions, by their `id`.
    """
    c, now = held_decisions.c, call.now
    conditions = (c.account_id == call.account.account_id, c.id.in_(held_ids))
    can_be_taken = (c.state == "held", c.due_at > now)
    values = {"state": "taken_back", "decision": None, "finished_at": now}
    await call.execute(update(held_decisions).where(*conditions, *can_be_taken).values(values))
    decision_rows = (await call.execute(select(held_decisions).where(*conditions).order_by(c.created_at, c.id))).all()
    if not decision_rows:
        raise ApprovalNotFound
    taken_rows = [row for row in decision_rows if row.state == "taken_back" and row.finished_at == now]
    if not taken_rows:
        raise TooLateToTakeBack(details={"approval_ids": [row.approval_id for row in decision_rows]})
    for row in taken_rows:
        await call.services.jobs.withdraw(call.execute, job_id_of(row.id))
    for organisation_id in sorted({row.organisation_id for row in taken_rows}):
        await call.services.notices.publish(call.unit, NOTICE, organisation_id)
    call.audit.resource_id, call.audit.organisation_id = taken_rows[0].approval_id, taken_rows[0].organisation_id
    call.audit.data["approvals"] = [row.approval_id for row in taken_rows]
    too_late = [row for row in decision_rows if row not in taken_rows]
    return {
        "taken_back": [_render(row._mapping) for row in taken_rows],  # noqa: SLF001 - SQLAlchemy's
        "too_late": [_render(row._mapping) for row in too_late],  # noqa: SLF001
    }


@approvals.tool(access=PEOPLE, effect="read", mcp=Mcp(offered=False))
async def approvals_inbox_state(call: Call) -> InboxState:
    """Read which decisions of this person are held, what became of those of the last hour, and what is snoozed."""
    account_id, c = call.account.account_id, approval_snoozes.c
    held_rows = await list_held(call.execute, account_id, call.now - _RECENT)
    query = select(c.approval_id, c.until).where(c.account_id == account_id, c.until > call.now)
    snoozes = (await call.execute(query.order_by(c.until))).all()
    return {
        "held": [_render(row._mapping) for row in held_rows],  # noqa: SLF001 - SQLAlchemy's
        "snoozed": [{"approval_id": row.approval_id, "until": row.until} for row in snoozes],
    }


@approvals.tool(access=PEOPLE, effect="read", mcp=Mcp(offered=False))
async def approvals_waiting(call: Call) -> WaitingPlaces:
    """List in brief what waits for this person in an organisation: to count it, and to find the next call."""
    organisation_id = call.account.organisation_id
    is_pending = (approval_rows.c.status == "pending", approval_rows.c.expires_at > call.now)
    query = select(approval_rows).where(await select_visible(call, organisation_id), *is_pending)
    rows = (await call.execute(query.order_by(approval_rows.c.created_at, approval_rows.c.id))).all()
    labels = ApprovalLabels(call.registry.tools, call.services, call.execute)
    own_name = proposers.proposer_name(call.caller)
    deciders: dict[str, Decider] = {}
    places: list[WaitingPlace] = []
    for row in rows:
        if row.organisation_id not in deciders:
            deciders[row.organisation_id] = await decider_of(call, row.organisation_id)
        gate = PendingDecision.of_approval(row)
        if row.proposer != own_name and deciders[row.organisation_id].may(gate):
            places.append(await _describe_place(labels, row, gate))
    return {"calls": places}


async def _describe_place(labels: ApprovalLabels, row: Any, gate: PendingDecision) -> WaitingPlace:
    return {
        "id": row.id,
        "tool": row.tool,
        "effect": row.effect,
        "app_id": row.app_id,
        "agent": row.agent,
        "node": row.node if row.app_right is None else row.app_right["node"],
        "run_as": None if row.app_right is None else "app",
        "tainted": row.tainted,
        "approvers": gate.approvers.as_json,
        "asker_kind": (await labels.asker(row))["kind"],
        "by": await labels.asks(row),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
    }


@approvals.tool(
    access=PEOPLE, effect="write", raises=(ApprovalNotFound, CannotSnooze), audit=None, mcp=Mcp(offered=False)
)
async def approvals_snooze(call: Call, approval_ids: ApprovalIds, minutes: Minutes) -> Snoozed:
    """Leave calls out of this person's inbox for some minutes. They are back an hour before they expire, at the latest.

    Others see them as before, and notices are not held back.

    approval_ids: the calls.
    minutes: for how long; 0 brings them back now.
    """
    snoozes: list[dict[str, Any]] = []
    for approval_id in dict.fromkeys(approval_ids):
        row = await find_approval(call, approval_id)
        until = min(call.now + timedelta(minutes=minutes), row.expires_at - _LEAST_LEFT)
        if minutes and until <= call.now:
            raise CannotSnooze(details={"approval_id": approval_id, "expires_at": row.expires_at})
        snoozes.append({"approval_id": row.id, "account_id": call.account.account_id, "until": until})
    await call.execute(_unsnooze(call, [each["approval_id"] for each in snoozes]))
    if minutes:
        await call.execute(insert(approval_snoozes), snoozes)
    return {"snoozed": [{"approval_id": each["approval_id"], "until": each["until"]} for each in snoozes if minutes]}


def _unsnooze(call: Call, approval_ids: list[str]) -> Any:
    c = approval_snoozes.c
    return delete(approval_snoozes).where(c.account_id == call.account.account_id, c.approval_id.in_(approval_ids))


def _render(values: Any) -> HeldDecision:
    return cast(HeldDecision, {name: values[name] for name in HeldDecision.__annotations__})
