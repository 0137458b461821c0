"""/v1/approvals."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import and_, or_, select

from baobab.runtime.agents.edits import edit_call, may_edit
from baobab.tools.approvals.access import DECIDERS, READERS
from baobab.tools.approvals.asking_runs import load_runs, read_answers
from baobab.tools.approvals.deeds import name_deed
from baobab.tools.approvals.errors import ApprovalNotFound, CallOutdated, OnlyRunsAreEdited
from baobab.tools.approvals.foreseeing import foresee_row
from baobab.tools.approvals.rendering import ApprovalRenderer, read_status, shorten_approval
from baobab.tools.approvals.schemas import Approval, ApprovalDetail, Approvals, OneApproval, Status
from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.tables import approvals as rows
from baobab.tools.approvals.toolset import approvals
from baobab.tools.approvals.visibility import find_approval, select_visible
from baobab.tools.core import (
    Account,
    AppId,
    AppNotFound,
    Audit,
    BadRequest,
    BaobabError,
    Call,
    Cursor,
    Guard,
    JsonObject,
    Mcp,
    PageSize,
    Text,
    decode_cursor,
    encode_cursor,
)
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.deciders import (
    NeedsAnother,
    NotAnApprover,
    NotYoursToDecide,
    PendingDecision,
)
from baobab.tools.core.auth.membership import decider_of
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.binding import Brief
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.approvals import AlreadyDecided, EditsTakeOne, WouldFail
from baobab.tools.core.guard.escaping import escape_json
from baobab.tools.core.guard.proposals import Decisions
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.waiting import WAIT, Waits

ApprovalId = Annotated[
    str,
    Text(200, min_length=1),
    Field(
        description="The `approval_id`.",
        examples=["appr_4fT0qZ9sKx2LmN8vB1cD7eRw"],
    ),
]
Reason = Annotated[str, Text(1000)]
_SHORT = {
    *("id", "status", "tool", "title", "effect", "app_id", "agent", "asked_by", "created_at", "expires_at"),
    *("decided_by_name", "reason", "error", "warnings", "action_id", "warning", "question", "run_id", "may_decide"),
}
"""What models are sent of an approval, where they do not read it alone."""
_LEFT_OUT = frozenset(Approval.__annotations__) - _SHORT
_NOTE = "approvals_get reads all of an approval."
_BRIEF = Brief("approval", _LEFT_OUT, _NOTE)
_TO_OUTCOME = Waits(
    lambda state: state["approval"]["status"] != "approved",
    "approvals_get",
    answer=lambda _, state: {"approval": state["approval"]},
)


@approvals.tool(
    "GET /",
    access=READERS,
    effect="read",
    raises=(AppNotFound,),
    mcp=Mcp(brief=Brief("approvals", _LEFT_OUT, _NOTE)),
)
async def approvals_list(
    call: Call,
    status: Status | None = None,
    app_id: AppId | None = None,
    limit: PageSize = 50,
    cursor: Cursor | None = None,
) -> Approvals:
    """List calls that wait for approval, and those decided in the last 90 days, newest first.

    A key that needs approval sees its own proposals; an account sees its own, those it may decide and, as admin or
    owner, all of the organisation's; an app's user, those that user may decide.

    status: only those of this status.
    """
    organisation = call.caller.organisation_id if isinstance(call.caller, Account) else ""
    query = (
        select(rows)
        .where(await select_visible(call, organisation))
        .order_by(rows.c.created_at.desc(), rows.c.id.desc())
    )
    if status == "pending":
        query = query.where(rows.c.status == "pending", rows.c.expires_at > call.now)
    elif status == "expired":
        query = query.where(or_(rows.c.status == "expired", and_(rows.c.status == "pending", _past(call))))
    elif status is not None:
        query = query.where(rows.c.status == status)
    if app_id is not None:
        await call.services.directory.app(app_id)
        query = query.where(rows.c.app_id == app_id)
    of, whole_query = f"approvals:{proposers.proposer_name(call.caller)}", query
    if cursor is not None:
        at, last = decode_cursor(call.services.vault, of, cursor)
        moment = datetime.fromisoformat(at)
        earlier = or_(rows.c.created_at < moment, and_(rows.c.created_at == moment, rows.c.id < last))
        query = query.where(earlier)
    approval_rows = (await call.execute(query.limit(limit + 1))).all()
    is_all = cursor is None and len(approval_rows) <= limit
    await count_list(call, call.execute, whole_query, is_all=is_all)
    page = approval_rows[:limit]
    next_cursor, renderer = None, ApprovalRenderer(call, await load_runs(call, page))
    if len(approval_rows) > limit:
        next_cursor = encode_cursor(call.services.vault, of, page[-1].created_at.isoformat(), page[-1].id)
    short_approvals = [shorten_approval(await renderer.render_row(row)) for row in page]
    return {"approvals": short_approvals, "next_cursor": next_cursor}


@approvals.tool(
    "GET /{approval_id}",
    waits=Waits(lambda state: state["approval"]["status"] not in ("pending", "approved")),
    access=READERS,
    effect="read",
    raises=(ApprovalNotFound,),
)
async def approvals_get(call: Call, approval_id: ApprovalId) -> ApprovalDetail:
    """Read one approval: what the call would do, a preview of it, and its outcome."""
    row = await find_approval(call, approval_id)
    preview, failure, asking_runs = Preview(), None, await load_runs(call, [row])
    if read_status(call, row) == "pending":
        preview, failure = await _preview(call, row, call.services.approvals.arguments(row))
    renderer = ApprovalRenderer(call, asking_runs)
    approval = await renderer.render_row(row)
    arguments, asking_run = approval["arguments"], asking_runs.get(row.run_id)
    if approval["run"] is not None and asking_run is not None and approval["may_decide"]:
        approval["run"]["answers"] = await read_answers(call, row, asking_run)
    run_input = None if asking_run is None else escape_json(asking_run.input, indent=2)
    decider = await renderer.find_decider(row.organisation_id)
    # The app's users and keys with limits do not see stored data here, because one of them may have proposed the call.
    is_member = isinstance(call.caller, Account) and call.caller.limits is None and decider.role is not None
    is_member = is_member and (decider.role != APPROVER or approval["may_decide"])
    # What the app sees is not for its users, but why the call would fail is for whoever decides about it.
    is_shown = is_member or row.app_right is None
    if is_shown and preview.warnings:
        approval["warnings"] = list(preview.warnings)
    if approval["undo"] == "unknown" and preview.is_undoable is not None:
        approval["undo"] = "possible" if preview.is_undoable else "never"
        approval["undo_days"] = call.services.options.undo_days if preview.is_undoable else None
    shown_text = preview.text if is_shown or (failure and approval["may_decide"]) else None
    changes = preview.changes if is_member else None
    button_text = name_deed(call.registry.tools.get(row.tool), row.effect, arguments or {}, shown_text, changes)
    if button_text is not None:
        approval["button"] = button_text
    return {
        "approval": approval,
        "proposer_name": await proposers.find_key_name(call, row.caller),
        "arguments": arguments,
        "arguments_text": None if arguments is None else escape_json(arguments, indent=2),
        "shown": service_of(call.services).texts.list_shown(row, arguments or {}),
        "run_input": run_input,
        "preview": shown_text,
        "would_fail": failure is not None,
        "then": approval["then"],
        "changes": changes,
        "may_decide": approval["may_decide"],
        "may_edit": approval["may_decide"] and row.run_id is not None and may_edit(row, decider),
    }


@approvals.tool(
    "POST /{approval_id}/approve",
    access=DECIDERS,
    effect="write",
    raises=(
        ApprovalNotFound,
        NotYoursToDecide,
        NotAnApprover,
        NeedsAnother,
        AlreadyDecided,
        CallOutdated,
        proposers.CallerUnreadable,
        EditsTakeOne,
        OnlyRunsAreEdited,
        WouldFail,
        BadRequest,
    ),
    audit=Audit("approval.approve", resource="approval"),
    guard=Guard(overwrites=True),
    waits=_TO_OUTCOME,
    mcp=Mcp(defaults={WAIT: 10}, brief=_BRIEF),
)
async def approvals_approve(
    call: Call,
    approval_id: ApprovalId,
    arguments: JsonObject | None = None,
    data: JsonObject | None = None,
    even_if_failing: bool = False,
) -> OneApproval:
    """Approve a waiting call: it is executed at once, exactly once, with its proposer's rights. Or answer a question.

    Only a person decides: not the credential that proposed the call, nor a key that needs approval itself. A call that
    would fail now is not approved. The answer's `status` says whether it was `executed` or `failed` (with its `error`);
    `approved` if that has not ended yet, `pending` if another person must agree.

    arguments: for a call of a run: arguments in place of those that it proposed.
    data: the answer to a question (`question` of the approval), as its `answer_schema` describes it.
    even_if_failing: approve it all the same if it would fail now (`would_fail` of the approval).
    """
    if not even_if_failing:
        await _require_success(call, approval_id, arguments, data)
    return await _decide(call, approval_id, "approved", None, arguments, data)


@approvals.tool(
    "POST /{approval_id}/reject",
    access=DECIDERS,
    effect="write",
    raises=(ApprovalNotFound, NotYoursToDecide, NotAnApprover, AlreadyDecided),
    audit=Audit("approval.reject", resource="approval"),
    mcp=Mcp(brief=_BRIEF),
)
async def approvals_reject(call: Call, approval_id: ApprovalId, reason: Reason | None = None) -> OneApproval:
    """Reject a waiting call: it is never executed.

    reason: shown to whoever proposed the call.
    """
    return await _decide(call, approval_id, "rejected", reason)


async def _decide(
    call: Call,
    approval_id: str,
    status: Literal["approved", "rejected"],
    reason: str | None,
    arguments: JsonObject | None = None,
    data: JsonObject | None = None,
) -> OneApproval:
    row = await find_approval(call, approval_id)
    call.audit.resource_id, call.audit.organisation_id, call.audit.app_id = row.id, row.organisation_id, row.app_id
    call.audit.data["tool"] = row.tool
    if proposers.proposer_name(call.caller) == row.proposer:
        raise NotYoursToDecide
    decider, edit = await decider_of(call, row.organisation_id), None
    if arguments is not None or data is not None:
        if row.run_id is None:
            raise OnlyRunsAreEdited
        # Checked first, so that nothing is read for somebody who may not see it.
        decider.require(PendingDecision.of_approval(row))
        edit = await edit_call(call, row, decider, arguments, data)
    await call.services.part(Decisions).decide(call, row.id, decider, status, reason, edit)
    row = await find_approval(call, approval_id)
    return {"approval": await ApprovalRenderer(call, await load_runs(call, [row])).render_row(row)}


async def _require_success(call: Call, approval_id: str, arguments: JsonObject | None, data: JsonObject | None) -> None:
    """Raises WouldFail for a call that would fail now. Whoever may not decide about it is refused later."""
    async with call.reading_apart() as reading:
        row = await find_approval(reading, approval_id)
        decider = await decider_of(reading, row.organisation_id)
        is_editable = (arguments is None and data is None) or row.run_id is not None
        if read_status(call, row) == "pending" and is_editable and decider.may(PendingDecision.of_approval(row)):
            await call.services.part(Decisions).require_success(reading, row, decider, arguments, data)


async def _preview(call: Call, row: Any, arguments: dict[str, Any]) -> tuple[Preview, BaobabError | None]:
    """Returns what the waiting call would do now, and the error that it would fail with."""
    try:
        return await foresee_row(call, row, arguments), None
    except BaobabError as error:
        return Preview(f"It would fail now: {error.message}"), error


def _past(call: Call) -> Any:
    return rows.c.expires_at <= call.now
