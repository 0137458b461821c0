"""Tool servers of an app: registered, looked at, accepted, removed, and called by its agents' runs.

What a server says of its tools is a stranger's text that models read. So each tool is kept as its owner accepted it,
and not called while its server says otherwise.
"""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import Field
from pydantic_core import to_json
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.agents.remote.errors import (
    RemoteToolFailed,
    ToolChanged,
    ToolNotOffered,
    ToolServerDenied,
    ToolServerFailed,
    ToolServerNotFound,
    ToolServerTimeout,
)
from baobab.runtime.agents.remote.server import ToolServer
from baobab.runtime.agents.remote.tables import credential_context
from baobab.runtime.agents.remote.tables import tool_servers as rows
from baobab.runtime.agents.remote.tool_description import ToolDescription
from baobab.runtime.agents.remote.tool_server_client import ToolServerClient
from baobab.runtime.net.addresses import AddressRefused, EgressError, Target, UrlRefused
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.errors import ToolServerExists
from baobab.tools.agents.schemas.tool_servers import (
    Acl,
    Auth,
    Digest,
    HeaderValue,
    McpServers,
    OneMcpServer,
    Probe,
    RemoteAnswer,
    ServerId,
    ServerName,
    ToolName,
    Transport,
    Url,
    server_of,
    tools_of,
)
from baobab.tools.agents.toolset import agents
from baobab.tools.core import (
    EVERYBODY,
    AppId,
    AppOwner,
    Audit,
    BadRequest,
    BaobabError,
    Call,
    Forbidden,
    Guard,
    JsonObject,
    Mcp,
    Rest,
)
from baobab.tools.core.guard.escaping import escape_text
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.core.limits.plan_room import PlanLimitReached, require_room


@agents.tool(
    "GET /mcp-servers",
    access=AppOwner(),
    effect="read",
    rest=Rest(further_names={"servers": "mcp_servers"}),
)
async def mcp_servers_list(call: Call, app_id: AppId) -> McpServers:
    """List the app's tool servers: MCP servers whose tools its agents may call."""
    query = select(rows).where(rows.c.app_id == app_id).order_by(rows.c.name)
    async with call.reading() as execute:
        server_rows: Any = (await execute(query)).mappings().all()
    return {"mcp_servers": [server_of(row) for row in server_rows]}


@agents.tool(
    "POST /mcp-servers",
    access=AppOwner("admin"),
    effect="external",
    raises=(ToolServerExists, PlanLimitReached, AddressRefused, UrlRefused),
    audit=Audit("agent.tool_server.create", action="create", resource="mcp_server"),
    rest=Rest(
        status=201,
        examples={"name": "docs", "url": "https://mcp.example.com/mcp"},
        further_names={"server": "mcp_server"},
    ),
    guard=Guard(widens={"tool_acl": whatever_is_given}),
)
async def mcp_servers_create(
    call: Call,
    app_id: AppId,
    name: ServerName,
    url: Url,
    transport: Transport = "streamable_http",
    auth: Auth | None = None,
    auth_header: HeaderValue | None = None,
    tool_acl: Acl | None = None,
) -> OneMcpServer:
    """Register an MCP server; its tools can then be named in graphs as `{source: mcp, server_id, name}`.

    Its tools are listed and accepted at once, so look at them. Tools that change later are not called until you accept
    them again. A server that does not answer is registered, too.

    name: the name that graphs and people use for it.
    url: its MCP endpoint. Private addresses are refused unless the operator allows them.
    transport: `streamable_http` (or `http`); or `sse`, for servers from before 2025.
    auth: its credential: `{type: bearer, token}`, or `{type: oauth, client_id, client_secret, token_url, scope?}`.
      Encrypted, never shown again, and sent to this server alone.
    auth_header: instead of `auth`, the whole `Authorization` header.
    tool_acl: by tool, `mode` and `exposed_to`. A tool is `read_only` if its server says so and `mode` is not
      `read_write`; users of the app have it only if `exposed_to` is `end_user`.
    """
    if auth is not None and auth_header is not None:
        raise BadRequest("Give `auth` or `auth_header`, not both.")
    id_, credential = call.services.ids.uuid(), _credential(auth, auth_header)
    sealed_credential = None
    if credential is not None:
        sealed_credential = call.services.vault.seal(to_json(credential), credential_context(id_))
    values: dict[str, Any] = {
        "id": id_,
        "app_id": app_id,
        "name": name,
        "url": Target.parse(url, https_only=False).url,
        "transport": "sse" if transport == "sse" else "streamable_http",
        "auth": _mask_credential(credential),
        "credential": sealed_credential,
        "tool_acl": tool_acl or {},
        "accepted": {},
        "seen": None,
        "created_at": call.now,
    }
    answer, error = await _probe_server(call, ToolServer.from_row(values))
    if isinstance(error, (AddressRefused, UrlRefused)):
        raise error
    values |= answer
    values["accepted"] = values["seen"] or {}
    call.audit.resource_id, call.audit.data["name"] = id_, name
    async with FREEZES.writing(call) as unit:
        count = select(func.count()).where(rows.c.app_id == app_id)
        plan = call.require_app().plan
        require_room("tool servers of an app", plan, plan.tool_servers, (await unit.execute(count)).scalar_one())
        try:
            await unit.execute(insert(rows), values)
        except IntegrityError as exc:
            raise ToolServerExists from exc
    server = server_of(values)
    return {"mcp_server": server}


async def _preview_delete(call: Call, app_id: AppId, id: ServerId) -> str:
    row = await _row(call, app_id, id)
    return f"It would remove the tool server {escape_text(row['name'])} at {escape_text(row['url'])}."


@agents.tool(
    "DELETE /mcp-servers/{id}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(ToolServerNotFound,),
    audit=Audit("agent.tool_server.delete", action="delete", resource="mcp_server"),
    rest=Rest(status=204),
    guard=Guard(preview=_preview_delete),
)
async def mcp_servers_delete(call: Call, app_id: AppId, id: ServerId) -> None:
    """Remove a tool server and its credential. Agents can no longer call its tools."""
    call.audit.resource_id = id
    async with FREEZES.writing(call) as unit:
        result = await unit.execute(delete(rows).where(rows.c.app_id == app_id, rows.c.id == id))
        if result.rowcount == 0:
            raise ToolServerNotFound


def _probe_failure(probe: Probe) -> ToolServerFailed | None:
    return None if probe["ok"] else ToolServerFailed(probe["error"], remediation=probe["remediation"])


async def _preview_probe(call: Call, app_id: AppId, id: ServerId, accept: Any = False) -> str:
    row = await _row(call, app_id, id)
    next_step = "accept what it says of them" if accept is not False else "show what it says of them"
    return f"It would ask {escape_text(row['name'])} at {escape_text(row['url'])} for its tools, and {next_step}."


@agents.tool(
    "POST /mcp-servers/{id}/probe",
    access=AppOwner("admin"),
    effect="external",
    raises=(ToolServerNotFound, ToolChanged),
    audit=Audit("agent.tool_server.probe", resource="mcp_server"),
    rest=Rest(status=lambda probe: 200 if probe["ok"] else 502, statuses=(200, 502)),
    mcp=Mcp(failure=_probe_failure),
    guard=Guard(overwrites=True, preview=_preview_probe, widens={"accept": bool}),
)
async def mcp_servers_probe(
    call: Call,
    app_id: AppId,
    id: ServerId,
    accept: bool | Annotated[list[Digest], Field(max_length=256)] = False,
) -> Probe:
    """Ask a tool server for its tools and check that it works; accept its tools as they are now.

    accept: true accepts its tools as you last saw them, without later changes; a list of digests accepts just those.
      By default, new and changed tools are shown and not called.
    """
    server = ToolServer.from_row(await _row(call, app_id, id))
    answer, error = await _probe_server(call, server)
    descriptions = {name: ToolDescription.from_row(name, row) for name, row in answer.get("seen", {}).items()}
    call.audit.resource_id, call.audit.data["accept"] = id, accept
    if error is None and (accept is not False or server.seen_tools is None):
        accepted_tools = _accepted_tools(server, descriptions, accept)
        answer["accepted"] = {name: tool.row for name, tool in accepted_tools.items()}
    async with FREEZES.writing(call) as unit:
        is_server = (rows.c.app_id == app_id, rows.c.id == id)
        # If two probe at once, the later answer stands: somebody was shown what it accepted.
        if (await unit.execute(update(rows).where(*is_server).values(answer))).rowcount == 0:
            raise ToolServerNotFound
        row: Any = (await unit.execute(select(rows).where(*is_server))).mappings().one()
    if error is not None:
        return {"ok": False, "error": error.message, "remediation": error.remedy}
    probe: Probe = {"ok": True, "tools": tools_of(row)}
    if row["problem"] is not None:
        probe["problem"] = row["problem"]
    return probe


async def _preview_call(
    call: Call, app_id: AppId, server_id: ServerId, tool: ToolName, digest: Digest, arguments: JsonObject
) -> str:
    del arguments
    server = await _get_pinned_server(call, app_id, server_id, tool, digest)
    return f"It calls `{tool}` of the tool server `{server.name}` at {server.url}."


@agents.tool(
    access=EVERYBODY,
    effect="external",
    raises=(
        ToolServerNotFound,
        ToolNotOffered,
        ToolChanged,
        ToolServerFailed,
        ToolServerDenied,
        ToolServerTimeout,
        RemoteToolFailed,
    ),
    audit=Audit("agent.tool_server.call", category="agents", action="invoke", resource="mcp_server"),
    taints=True,
    mcp=Mcp(offered=False),
    guard=Guard(preview=_preview_call),
)
async def mcp_servers_call(
    call: Call, app_id: AppId, server_id: ServerId, tool: ToolName, digest: Digest, arguments: JsonObject
) -> RemoteAnswer:
    """Call a tool of an outside server. Only runs of agents can.

    digest: the tool's digest when the call was proposed; a changed tool is not called.
    """
    step, approved_attempt = call.context.step, call.approved_attempt
    if approved_attempt is not None and approved_attempt.run_id is not None:
        key = approved_attempt.id
    elif step is not None:
        key = f"{step.run_id}:{step.call_id}"
    else:
        raise Forbidden("Only runs of agents call tools of tool servers.")
    call.audit.resource_id, call.audit.data["tool"] = server_id, tool
    server = await _get_pinned_server(call, app_id, server_id, tool, digest)
    return cast(RemoteAnswer, await call.services.of(ToolServerClient).call_tool(server, tool, arguments, key))


async def _get_pinned_server(call: Call, app_id: str, server_id: str, tool: str, digest: str) -> ToolServer:
    """Returns the server if the accepted description of the tool is the one that the approver was shown."""
    server = ToolServer.from_row(await _row(call, app_id, server_id))
    if server.get_tool(tool).digest != digest:
        raise ToolChanged(
            f"The tool `{tool[:64]}` has changed since this call was proposed, so the call is not made.",
            remediation="Look at the tool as it is now. If you still want the call, have it proposed again.",
        )
    return server


async def _probe_server(call: Call, server: ToolServer) -> tuple[dict[str, Any], BaobabError | None]:
    """Returns the columns of a server after a probe, and why it did not answer, if it did not."""
    if not call.is_nested:
        # No transaction stays open while another server answers.
        await call.unit.commit()
    now = {"last_health": call.now, "updated_at": call.now}
    try:
        listing = await call.services.of(ToolServerClient).list_tools(server)
    except (ToolServerFailed, EgressError) as exc:
        return {**now, "status": "unhealthy", "problem": exc.message}, exc
    problem = f"{listing.left_out} of its tools cannot be used here." if listing.left_out else None
    descriptions = {name: tool.row for name, tool in listing.tools.items()}
    return {**now, "status": "healthy", "problem": problem, "seen": descriptions}, None


def _accepted_tools(
    server: ToolServer, descriptions: Mapping[str, ToolDescription], accept: bool | list[str]
) -> Mapping[str, ToolDescription]:
    """Returns the tools that may be called from now on. Raises ToolChanged if a digest fits none of them."""
    if server.seen_tools is None:
        # The first tool is shown in the error.
        return descriptions
    digests = {tool.digest for tool in server.seen_tools.values()} if isinstance(accept, bool) else set(accept)
    current_digests = {tool.digest for tool in descriptions.values()}
    if not isinstance(accept, bool) and (unknown_digests := sorted(digests - current_digests)):
        raise ToolChanged("No tool of the server has this digest now.", details={"digests": unknown_digests})
    remaining = {name: tool for name, tool in server.accepted_tools.items() if name in descriptions}
    return remaining | {name: tool for name, tool in descriptions.items() if tool.digest in digests}


async def _row(call: Call, app_id: str, id_: str) -> Any:
    is_server = (rows.c.app_id == app_id, rows.c.id == id_)
    async with call.reading() as execute:
        row = (await execute(select(rows).where(*is_server))).mappings().first()
    if row is None:
        raise ToolServerNotFound
    return row


def _credential(auth: Any, header: str | None) -> dict[str, Any] | None:
    if header is not None:
        return {"type": "header", "value": header}
    return None if auth is None else dict(auth)


def _mask_credential(credential: Mapping[str, Any] | None) -> dict[str, str] | None:
    if credential is None:
        return None
    secrets = ("token", "client_secret", "value")
    return {name: "***" if name in secrets else value for name, value in credential.items()}
