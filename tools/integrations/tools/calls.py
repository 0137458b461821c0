"""The tools that call other services' tools with a user's account."""

from typing import Annotated, Any

from pydantic_core import to_json
from sqlalchemy import select

from baobab.runtime.integrations.provider import IntegrationProvider, ProviderBusy, ToolFacts
from baobab.tools.core import (
    AppId,
    Audit,
    Call,
    Cursor,
    Guard,
    Mcp,
    PageSize,
    Rest,
    Text,
    decode_cursor,
    encode_cursor,
)
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.escaping import escape_json
from baobab.tools.core.guard.wording import LABEL, quote_text
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.integrations.errors import (
    EXECUTING,
    ExecutionFailed,
    NotConfigured,
    ToolkitNotEnabled,
    UpstreamFailed,
)
from baobab.tools.integrations.executing import CallPlan, execute, find_key, prepare
from baobab.tools.integrations.schemas import (
    AccountRef,
    Calls,
    CallView,
    Executed,
    IdempotencyKey,
    Params,
    Row,
    ToolkitSlug,
    ToolName,
    Tools,
    ToolView,
    UserId,
)
from baobab.tools.integrations.subject import find_user_id
from baobab.tools.integrations.tables import calls
from baobab.tools.integrations.toolkits import find_provider, list_enabled, load_enabled, translate_busy
from baobab.tools.integrations.toolset import integrations

_EXAMPLE = {"toolName": "GMAIL_FETCH_EMAILS", "params": {"query": "is:unread"}}
_LONGEST_PAYLOAD = 20_000
_columns = calls.c
ToolSearch = Annotated[str, Text(200)]


@integrations.tool(
    "GET /tools",
    access=OF_APP,
    effect="read",
    raises=(ToolkitNotEnabled, NotConfigured, UpstreamFailed),
)
async def integrations_tools(
    call: Call, app_id: AppId, toolkit: ToolkitSlug | None = None, search: ToolSearch = ""
) -> Tools:
    """List the tools of the toolkits that an app has enabled, with the schemas of their parameters.

    toolkit: only the tools of this toolkit.
    search: a part of a tool's name or description.
    """
    del app_id
    rows = await list_enabled(call) if toolkit is None else [await load_enabled(call, toolkit)]
    views: list[ToolView] = []
    providers: list[IntegrationProvider] = []
    for row in rows:
        provider = find_provider(call.services, row.provider)
        providers.append(provider)
        try:
            tools = await provider.list_tools(row.toolkit_slug)
        except ProviderBusy as busy:
            raise translate_busy(busy) from busy
        words = search.lower()
        views += [_describe_tool(tool) for tool in tools if words in f"{tool.name} {tool.description}".lower()]
    answer: Tools = {"tools": views}
    return mark_simulated(call, answer) if any(each.is_simulated for each in providers) else answer


def _describe_tool(tool: ToolFacts) -> ToolView:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "toolkit": tool.toolkit,
        "read_only": tool.effect == "read",
        "scopes": list(tool.scopes),
    }


async def _preview(
    call: Call,
    app_id: AppId,
    toolName: str,
    params: dict[str, Any] | None = None,
    userId: str | None = None,
    account: str | None = None,
    idempotencyKey: str | None = None,
) -> Preview:
    del app_id, idempotencyKey
    plan = await prepare(call, toolName, params or {}, userId, account)
    row = plan.account
    payload = escape_json(dict(plan.params), indent=2)
    if len(payload) > _LONGEST_PAYLOAD:
        payload = f"{payload[:_LONGEST_PAYLOAD]}\n… ({len(payload)} characters in all)"
    scopes = ", ".join(quote_text(scope) for scope in row.scopes) or "none that the service names"
    text = (
        f"It would act at {row.toolkit_slug} as the account {quote_text(plan.account_name)}, which the app's user"
        f" {row.app_user_id} has connected.\nThe account has given: {scopes}.\n"
        f"{plan.tool.name} would be sent exactly this:\n{payload}"
    )
    return Preview(text, label=plan.account_name)


async def _meaning(
    call: Call,
    app_id: AppId,
    toolName: str,
    params: dict[str, Any] | None = None,
    userId: str | None = None,
    account: str | None = None,
    idempotencyKey: str | None = None,
) -> str:
    """Pins the account: a call that was approved for one is not made with another."""
    del app_id, idempotencyKey
    return (await prepare(call, toolName, params or {}, userId, account)).digest


def _tell_outcome(arguments: Any) -> str:
    label = arguments.get(LABEL)
    whose = "a user's account" if label is None else f"the account {quote_text(label)}"
    return f"Call {quote_text(arguments.get('toolName'))} with {whose}"


@integrations.tool(
    "POST /execute",
    access=OF_APP,
    effect="external",
    raises=EXECUTING,
    taints=True,
    audit=Audit("integration.execute", action="invoke", resource="integration_connection"),
    rest=Rest(examples=_EXAMPLE),
    guard=Guard(preview=_preview, meaning=_meaning, outcome=_tell_outcome),
)
async def integrations_execute(
    call: Call,
    app_id: AppId,
    toolName: ToolName,
    params: Params | None = None,
    userId: UserId | None = None,
    account: AccountRef | None = None,
    idempotencyKey: IdempotencyKey | None = None,
) -> Executed:
    """Call a tool of another service with a user's connected account, such as to send a mail as the user.

    For tools that only read, op:integrations_read asks nobody.

    params: the tool's parameters; op:integrations_tools has their schema.
    """
    del app_id
    plan = await prepare(call, toolName, params or {}, userId, account)
    _note(call, plan)
    return await _execute(call, plan, find_key(call, idempotencyKey))


@integrations.tool(
    access=OF_APP,
    effect="read",
    raises=EXECUTING,
    taints=True,
    rest=Rest(examples=_EXAMPLE),
    mcp=Mcp(long_running=True),
)
async def integrations_read(
    call: Call,
    app_id: AppId,
    toolName: ToolName,
    params: Params | None = None,
    userId: UserId | None = None,
    account: AccountRef | None = None,
) -> Executed:
    """Call a tool of another service that only reads, with a user's connected account, such as to search mail.

    params: the tool's parameters; op:integrations_tools has their schema.
    """
    del app_id
    plan = await prepare(call, toolName, params or {}, userId, account)
    if plan.tool.effect != "read":
        raise ExecutionFailed(
            f"{toolName} changes something at the service.", remediation="Call it with op:integrations_execute."
        )
    return await _execute(call, plan, None)


async def _execute(call: Call, plan: CallPlan, key: str | None) -> Executed:
    data, call_id = await execute(call, plan, key)
    answer: Executed = {
        "successful": True,
        "data": data,
        "account": plan.account_name,
        "call_id": call_id,
    }
    return mark_simulated(call, answer) if plan.provider.is_simulated else answer


def _note(call: Call, plan: CallPlan) -> None:
    """Says in the audit log whose account is used. Never what is sent."""
    row = plan.account
    call.audit.resource_id = row.id
    about = {"toolkit": row.toolkit_slug, "tool": plan.tool.name, "user_id": row.app_user_id}
    call.audit.data |= {**about, "account_name": plan.account_name, "scopes": row.scopes}
    call.audit.data["params_bytes"] = len(to_json(dict(plan.params)))


@integrations.tool("GET /calls", access=OF_APP, effect="read", taints=True, raises=(CursorInvalid,))
async def integrations_calls(
    call: Call,
    app_id: AppId,
    toolkit: ToolkitSlug | None = None,
    userId: UserId | None = None,
    limit: PageSize = 50,
    cursor: Cursor | None = None,
) -> Calls:
    """List the calls that were made with connected accounts in the last 30 days, newest first, and how each ended.

    A user sees their own, whoever runs the app those of all users, or of one. What was sent is not kept.

    toolkit: only the calls of this toolkit.
    """
    user_id = find_user_id(call, userId)
    list_name = f"integration calls:{app_id}:{user_id}:{toolkit}"
    query = select(calls).where(_columns.app_id == app_id).order_by(_columns.id.desc()).limit(limit + 1)
    if user_id is not None:
        query = query.where(_columns.app_user_id == user_id)
    if toolkit is not None:
        query = query.where(_columns.toolkit_slug == toolkit)
    if cursor is not None:
        (last_id,) = decode_cursor(call.services.vault, list_name, cursor)
        query = query.where(_columns.id < last_id)
    rows = (await call.read(query)).all()
    following = encode_cursor(call.services.vault, list_name, rows[limit - 1].id) if len(rows) > limit else None
    return {"calls": [_describe_call(row) for row in rows[:limit]], "next_cursor": following}


def _describe_call(row: Row) -> CallView:
    return {
        "id": row.id,
        "app_user_id": row.app_user_id,
        "toolkit_slug": row.toolkit_slug,
        "tool": row.tool,
        "account_name": row.account_name,
        "status": row.status,
        "code": row.code,
        "message": row.message,
        "simulated": row.simulated,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }
