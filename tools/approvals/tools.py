"""/v1/approvals."""

from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from sqlalchemy import and_, or_, select

from baobab.runtime.agents.edits import edit_call
from baobab.runtime.agents.tables import runs
from baobab.tools.approvals.access import DECIDERS, READERS
from baobab.tools.approvals.acting import restore_acting_caller
from baobab.tools.approvals.carrying_over import CallOutdated, require_makeable
from baobab.tools.approvals.errors import ApprovalNotFound, OnlyRunsAreEdited
from baobab.tools.approvals.naming import ApprovalLabels
from baobab.tools.approvals.schemas import Approval, ApprovalDetail, Approvals, OneApproval, Status
from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.tables import approvals as rows
from baobab.tools.approvals.toolset import approvals
from baobab.tools.core.app_rights import name_editable_fields
from baobab.tools.core.approvals import AlreadyDecided, EditsTakeOne
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import Account, AppKey, EndUser
from baobab.tools.core.auth.deciders import (
    MEMBER,
    OWNER_OF_KEY,
    STARTER,
    USER,
    NeedsAnother,
    NotAnApprover,
    NotYoursToDecide,
    PendingDecision,
    person,
)
from baobab.tools.core.auth.membership import decider_of, load_role
from baobab.tools.core.auth.roles import rank
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call, Preview
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import AppNotFound, BadRequest, BaobabError, Forbidden
from baobab.tools.core.escaping import escape_json
from baobab.tools.core.pagination import Cursor, PageSize, decode_cursor, encode_cursor
from baobab.tools.core.proposals import Decisions
from baobab.tools.core.toolset import Mcp
from baobab.tools.core.types import AppId, JsonObject, Text
from baobab.tools.core.wording import redact_arguments

ApprovalId = Annotated[
    str,
    Text(200, min_length=1),
    Field(
        description="The `approval_id`, as the refused call or the run's event named it.",
        examples=["appr_4fT0qZ9sKx2LmN8vB1cD7eRw"],
    ),
]
Reason = Annotated[str, Text(1000)]
_COLUMNS = (
    "id",
    "status",
    "tool",
    "effect",
    "app_id",
    "proposer",
    "account_id",
    "created_at",
    "expires_at",
    "decided_at",
    "decided_by",
    "reason",
    "finished_at",
    "error",
    "tainted",
    "edited",
    "run_id",
    "agent",
)


@approvals.tool(
    "GET /",
    access=READERS,
    effect="read",
    raises=(AppNotFound,),
    mcp=Mcp(
        keywords=(
            "what waits for a decision, pending requests, inbox, confirmations, human in the loop; "
            "offene Genehmigungen, Freigaben, was wartet; "
            "aprobaciones pendientes, esperan aprobación"
        ),
    ),
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
    query = select(rows).where(await _visible(call, organisation)).order_by(rows.c.created_at.desc(), rows.c.id.desc())
    if status == "pending":
        query = query.where(rows.c.status == "pending", rows.c.expires_at > call.now)
    elif status == "expired":
        query = query.where(or_(rows.c.status == "expired", and_(rows.c.status == "pending", _past(call))))
    elif status is not None:
        query = query.where(rows.c.status == status)
    if app_id is not None:
        await call.services.directory.app(app_id)
        query = query.where(rows.c.app_id == app_id)
    of = f"approvals:{proposers.proposer_name(call.caller)}"
    if cursor is not None:
        at, last = decode_cursor(call.services.vault, of, cursor)
        moment = datetime.fromisoformat(at)
        earlier = or_(rows.c.created_at < moment, and_(rows.c.created_at == moment, rows.c.id < last))
        query = query.where(earlier)
    approval_rows = (await call.execute(query.limit(limit + 1))).all()
    page = approval_rows[:limit]
    next_cursor, names = None, _labels(call)
    if len(approval_rows) > limit:
        next_cursor = encode_cursor(call.services.vault, of, page[-1].created_at.isoformat(), page[-1].id)
    return {"approvals": [await _render_approval(call, row, names) for row in page], "next_cursor": next_cursor}


@approvals.tool(
    "GET /{approval_id}",
    access=READERS,
    effect="read",
    raises=(ApprovalNotFound,),
    mcp=Mcp(
        start=True,
        keywords="details or status of an approval, was it approved, what would it do; "
        "Genehmigung ansehen; "
        "ver aprobación",
    ),
)
async def approvals_get(call: Call, approval_id: ApprovalId) -> ApprovalDetail:
    """Read one approval: what the call would do, with a preview of the present if its tool has one, and its outcome."""
    row = await _find(call, approval_id)
    arguments, preview = None, Preview(None)
    if _status(call, row) in ("pending", "approved"):
        call_arguments, tool = call.services.approvals.arguments(row), call.registry.tools.get(row.tool)
        # If the tool no longer exists, nobody knows which arguments are secrets.
        arguments = None if tool is None else redact_arguments(tool, call_arguments)
        preview = await _preview(call, row, call_arguments) if row.status == "pending" else preview
    elif (used_arguments := service_of(call.services).texts.used_arguments(row)) is not None:
        arguments = used_arguments
    decider = await decider_of(call, row.organisation_id)
    # The app's users and keys with limits do not see stored data here, because one of them may have proposed the call.
    is_member = isinstance(call.caller, Account) and call.caller.limits is None and decider.role is not None
    return {
        "approval": await _render_approval(call, row),
        "proposer_name": await proposers.find_key_name(call, row.caller),
        "arguments": arguments,
        "arguments_text": None if arguments is None else escape_json(arguments, indent=2),
        "run_input": await _run_input(call, row),
        "preview": preview.text if is_member or row.app_right is None else None,
        "changes": preview.changes if is_member else None,
        "may_decide": decider.may(PendingDecision.of_approval(row))
        and proposers.proposer_name(call.caller) != row.proposer,
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
        BadRequest,
    ),
    audit=Audit("approval.approve", resource="approval"),
    mcp=Mcp(
        keywords=(
            "confirm, allow, accept, permit, say yes, OK, sign off, green light; "
            "genehmigen, freigeben, zustimmen; "
            "aprobar, autorizar, aceptar"
        )
    ),
)
async def approvals_approve(
    call: Call, approval_id: ApprovalId, arguments: JsonObject | None = None, data: JsonObject | None = None
) -> OneApproval:
    """Approve a waiting call: it is executed at once, exactly once, with its proposer's rights. Or answer a question.

    Only a person decides: not the credential that proposed the call, nor a key that needs approval itself.

    arguments: for a call of a run: arguments in place of those that it proposed.
    data: the answer to a question (`question` of the approval), as its `answer_schema` describes it.
    """
    return await _decide(call, approval_id, "approved", None, arguments, data)


@approvals.tool(
    "POST /{approval_id}/reject",
    access=DECIDERS,
    effect="write",
    raises=(ApprovalNotFound, NotYoursToDecide, NotAnApprover, AlreadyDecided),
    audit=Audit("approval.reject", resource="approval"),
    mcp=Mcp(keywords="deny, decline, refuse, disallow, say no, veto; ablehnen, verweigern; rechazar, denegar"),
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
    row = await _find(call, approval_id)
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
    return {"approval": await _render_approval(call, await _find(call, approval_id))}


async def _find(call: Call, approval_id: str) -> Any:
    row = (await call.execute(select(rows).where(rows.c.id == approval_id))).first()
    if row is None:
        raise ApprovalNotFound
    caller = call.caller
    # A person follows the address of an approval from whichever organisation they work in; a key stays in its own.
    by_token = isinstance(caller, Account) and caller.key_id is None
    home = row.organisation_id if by_token or not isinstance(caller, Account) else caller.organisation_id
    try:
        visible = select(rows.c.id).where(rows.c.id == approval_id, await _visible(call, home))
    except Forbidden as exc:
        raise ApprovalNotFound from exc
    if (await call.execute(visible)).first() is None:
        raise ApprovalNotFound
    return row


async def _visible(call: Call, organisation_id: str) -> Any:
    """Returns which approvals of an organisation are the caller's business."""
    caller = call.caller
    is_own = rows.c.proposer == proposers.proposer_name(caller)
    if caller.limits is None and isinstance(caller, (AppKey, EndUser)):
        of_app = and_(rows.c.app_id == caller.app_id, rows.c.run_id.is_not(None))
        if isinstance(caller, AppKey):
            return or_(is_own, of_app)
        own_runs = and_(rows.c.approvers == STARTER, rows.c.starter == person(caller))
        return or_(is_own, and_(of_app, or_(rows.c.approvers.in_((USER, f"role:{caller.role}")), own_runs)))
    if not isinstance(caller, Account) or caller.limits is not None:
        return is_own
    role = await load_role(call, organisation_id, caller.account_id)
    if role is None:
        raise Forbidden("This account is not a member of the organisation.")
    of_organisation = rows.c.organisation_id == organisation_id
    if rank(role) >= rank("admin"):
        return of_organisation
    is_starter = and_(rows.c.approvers.in_((STARTER, OWNER_OF_KEY)), rows.c.starter == person(caller))
    return and_(of_organisation, or_(rows.c.account_id == caller.account_id, rows.c.approvers == MEMBER, is_starter))


async def _preview(call: Call, row: Any, arguments: dict[str, Any]) -> Preview:
    """Describes what the waiting call would do now, with its proposer's rights."""
    try:
        require_makeable(call.registry, row, arguments)
        tool = call.registry.find(row.tool)
        caller = await restore_acting_caller(call.services, call.unit, row, tool)
        context = RequestContext(row.door, row.request_id, base_url=call.context.base_url)
        return await call.registry.preview(tool, arguments, caller, context, call.unit)
    except BaobabError as error:
        return Preview(f"It would fail now: {error.message}")


def _past(call: Call) -> Any:
    return rows.c.expires_at <= call.now


def _status(call: Call, row: Any) -> Status:
    is_overdue = row.status == "pending" and row.expires_at <= call.now
    status: Status = "expired" if is_overdue else row.status
    return status


async def _run_input(call: Call, row: Any) -> str | None:
    """Returns the input of the run that asks. None if the run was deleted, or if no run asks."""
    if row.run_id is None or row.app_id is None:
        return None
    try:
        app = await call.services.directory.app(row.app_id)
    except AppNotFound:
        return None
    database, query = call.services.stores_of(app.region).database, select(runs.c.input).where(runs.c.id == row.run_id)
    if call.unit.database is database:
        run_input = (await call.execute(query)).scalar()
    else:
        async with database.reading() as connection:
            run_input = (await connection.execute(query)).scalar()
    return None if run_input is None else escape_json(run_input, indent=2)


def _labels(call: Call) -> ApprovalLabels:
    return ApprovalLabels(call.registry.tools, call.services, call.execute)


async def _render_approval(call: Call, row: Any, names: ApprovalLabels | None = None) -> Approval:
    context = {
        "status": _status(call, row),
        "approvers": PendingDecision.of_approval(row).approvers.as_json,
        "agreed": row.agreed or [],
        "run_as": None if row.app_right is None else "app",
        "node": None if row.app_right is None else row.app_right["node"],
        "edit": name_editable_fields(row.app_right),
    }
    names, tool = names or _labels(call), call.registry.tools.get(row.tool)
    context |= {
        "summary": service_of(call.services).texts.summarise(row, tool),
        "asked_summary": service_of(call.services).texts.summarise_asked(row, tool),
    }
    context |= {"title": names.title(row), "asked_by": await names.asked_by(row), "asker": await names.asker(row)}
    context |= {"app_name": await names.app(row)}
    return cast(Approval, {name: getattr(row, name) for name in _COLUMNS} | context)
