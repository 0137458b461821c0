"""The tools of connected accounts: connect one, list them, disconnect one; and what the page of a link needs."""

from typing import Annotated
from urllib.parse import urlencode, urlsplit

from pydantic import Field
from sqlalchemy import delete

from baobab.runtime.integrations.provider import ProviderBusy
from baobab.tools.core import EVERYBODY, AppId, Audit, Call, Guard, Mcp, NotFound, NotSecret, PerAddress, Rest, Text
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.guard.wording import quote_text
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.integrations.errors import (
    CONNECTING,
    ConnectionNotFound,
    LinkRefused,
    NotConfigured,
    ToolkitNotEnabled,
    UpstreamFailed,
)
from baobab.tools.integrations.grants import build_connection, get_connection, list_connections
from baobab.tools.integrations.links import (
    StateRefused,
    build_link,
    check_redirect,
    finish_link,
    name_link_cookie,
    open_link,
    open_ticket,
)
from baobab.tools.integrations.schemas import (
    Alias,
    Connecting,
    ConnectionId,
    Connections,
    ConnectionView,
    LinkOpened,
    LinkView,
    RedirectUrl,
    Row,
    SentBack,
    ToolkitSlug,
    UserId,
)
from baobab.tools.integrations.subject import Subject, find_user_id, load_subject
from baobab.tools.integrations.tables import FREEZES, connections
from baobab.tools.integrations.toolkits import build_setting, find_provider, list_enabled, load_enabled
from baobab.tools.integrations.toolset import CONNECTED, DISCONNECTED, integrations

_LIMIT = PerAddress(120, 60, per_app=True)
_columns = connections.c
Cookies = Annotated[str, Text(16_000), Field(description="The browser's cookies. The server fills them in.")]
Ticket = Annotated[str, Text(8000, 1, r"^[A-Za-z0-9._=-]+$"), Field(description="What the link holds.")]
StateText = Annotated[str, Text(8000), Field(description="Which link the browser comes back from.")]
Code = Annotated[
    str,
    Text(4000),
    NotSecret("it is good for one exchange, with this server's client"),
    Field(description="What the service's tokens are exchanged for."),
]
AnswerText = Annotated[str, Text(500)]


@integrations.tool(
    "POST /connect",
    access=OF_APP,
    effect="write",
    raises=(*CONNECTING, NotFound),
    audit=Audit("integration.connect", action="create", resource="integration_connection"),
    rest=Rest(examples={"toolkit": "gmail", "redirectUrl": "http://localhost:3000/settings"}),
)
async def integrations_connect(
    call: Call,
    app_id: AppId,
    toolkit: ToolkitSlug,
    redirectUrl: RedirectUrl | None = None,
    userId: UserId | None = None,
    alias: Alias | None = None,
) -> Connecting:
    """Begin to connect an account of a user: the answer is the address at which the user agrees, in a browser.

    The address is good for an hour and for one browser. It names the user, and nobody else should open it.
    """
    del app_id
    row = await load_enabled(call, toolkit)
    check_redirect(call, redirectUrl)
    subject = await load_subject(call, userId)
    url, connection_id = build_link(call, subject, toolkit, alias, redirectUrl)
    call.audit.resource_id = connection_id
    call.audit.data |= {"toolkit": toolkit, "user_id": subject.id}
    answer: Connecting = {"authUrl": url, "connectionRequestId": connection_id}
    return mark_simulated(call, answer) if find_provider(call.services, row.provider).is_simulated else answer


@integrations.tool(
    access=EVERYBODY, effect="read", raises=(LinkRefused, ToolkitNotEnabled), limit=_LIMIT, mcp=Mcp(offered=False)
)
async def integrations_link(call: Call, app_id: AppId, ticket: Ticket) -> LinkView:
    """Return what a link to connect an account is for, as its page shows it."""
    del app_id
    opening = open_ticket(call, ticket)
    row = await load_enabled(call, opening.toolkit)
    provider = find_provider(call.services, row.provider)
    try:
        toolkit = await provider.find_toolkit(row.toolkit_slug)
    except ProviderBusy:
        toolkit = None
    words = {} if toolkit is None else {scope.name: scope.words for scope in toolkit.scopes}
    view: LinkView = {
        "toolkit": row.toolkit_slug,
        "display_name": row.display_name,
        "app_name": call.require_app().title,
        "user_name": opening.user_name,
        "alias": opening.alias,
        "scopes": [{"scope": scope, "words": words.get(scope, scope)} for scope in row.scopes],
    }
    return mark_simulated(call, view) if provider.is_simulated else view


@integrations.tool(
    access=EVERYBODY,
    effect="write",
    raises=(LinkRefused, ToolkitNotEnabled, NotConfigured, UpstreamFailed),
    limit=_LIMIT,
    audit=Audit("integration.link_opened", action="create", resource="integration_connection"),
    mcp=Mcp(offered=False),
)
async def integrations_link_open(call: Call, app_id: AppId, ticket: Ticket) -> LinkOpened:
    """Open a link to connect an account, once: return the service's consent page, and a cookie for this browser."""
    del app_id
    opening = open_ticket(call, ticket)
    location, browser = await open_link(call, opening)
    call.audit.resource_id = opening.id
    call.audit.data |= {"toolkit": opening.toolkit, "user_id": opening.user_id}
    return {"location": location, "browser": _build_cookie(call, opening.id, browser, 3600)}


def _build_cookie(call: Call, connection_id: str, value: str, seconds: int) -> str:
    is_secure = call.services.options.base_url.startswith("https:")
    # A cookie that only this host can set has this path.
    path = "/" if is_secure else f"/v1/{call.require_app().id}/integrations/callback"
    name = name_link_cookie(call, connection_id)
    parts = [f"{name}={value}", f"Path={path}", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
    return "; ".join([*parts, "Secure"] if is_secure else parts)


@integrations.tool(
    "GET /callback",
    access=EVERYBODY,
    effect="write",
    limit=_LIMIT,
    audit=Audit("integration.callback", action="create", resource="integration_connection"),
    rest=Rest(status=302, form=True, from_headers={"cookies": "cookie"}),
    mcp=Mcp(offered=False),
)
async def integrations_callback(
    call: Call,
    app_id: AppId,
    state: StateText | None = None,
    code: Code | None = None,
    error: AnswerText | None = None,
    status: AnswerText | None = None,
    connected_account_id: AnswerText | None = None,
    cookies: Cookies = "",
) -> SentBack:
    """Take a browser back from a service, and send it on to the app.

    The app's address gets `status=connected&toolkit=SLUG`, or `status=error&message=` with `missing_state`,
    `invalid_state`, `app_mismatch` or `connection_failed`.

    error: why the service has not connected the account.
    status: what a provider says of the account.
    connected_account_id: the provider's id of the account.
    """
    given_values = {"code": code, "error": error, "status": status, "connected_account_id": connected_account_id}
    query = {name: value for name, value in given_values.items() if value is not None}
    try:
        opening, row = await finish_link(call, state, query, cookies)
    except StateRefused as refused:
        call.audit.data |= {"status": "error", "message": refused.code}
        redirect_url, connection_id = None, None
        if refused.state is not None:
            redirect_url, connection_id = refused.state.redirect_url, refused.state.id
            call.audit.resource_id = connection_id
            call.audit.data |= {"toolkit": refused.state.toolkit, "user_id": refused.state.user_id}
        return _send_back(call, redirect_url, connection_id, {"status": "error", "message": refused.code})
    call.audit.resource_id = row.id
    call.audit.actor, call.audit.actor_id = "app_user", opening.user_id
    about = {"toolkit": row.toolkit_slug, "user_id": row.app_user_id, "account_name": row.account_name}
    call.audit.data |= {"status": "connected", **about, "scopes": row.scopes}
    await call.emit(CONNECTED, connection_id=row.id, app_id=app_id, **about)
    answer = {"status": "connected", "toolkit": opening.toolkit}
    return _send_back(call, opening.redirect_url, opening.id, answer)


def _send_back(call: Call, address: str | None, connection_id: str | None, answer: dict[str, str]) -> SentBack:
    if address is None:
        address = f"{call.services.options.base_url}/auth/{call.require_app().id}/connect/done"
    location = f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(answer)}"
    call.headers = [(b"location", location.encode()), (b"cache-control", b"no-store")]
    if connection_id is not None:
        call.headers.append((b"set-cookie", _build_cookie(call, connection_id, "", 0).encode()))
    return {"location": location}


@integrations.tool("GET /connections", access=OF_APP, effect="read", taints=True)
async def integrations_connections(
    call: Call, app_id: AppId, toolkit: ToolkitSlug | None = None, userId: UserId | None = None
) -> Connections:
    """List connected accounts: a user sees their own, whoever runs the app those of all users, or of one.

    toolkit: only the accounts of this toolkit.
    """
    del app_id
    user_id = find_user_id(call, userId)
    rows = await list_connections(call, user_id, toolkit)
    enabled_rows = {row.toolkit_slug: row for row in await list_enabled(call)}
    subject = await load_subject(call, user_id) if user_id is not None and rows else None
    return {"connections": [_describe(call, row, enabled_rows, subject) for row in rows]}


def _describe(call: Call, row: Row, enabled_rows: dict[str, Row], subject: Subject | None) -> ConnectionView:
    url = None
    if row.status != "active" and row.toolkit_slug in enabled_rows:
        owner = subject or Subject(row.app_user_id, row.app_user_id)
        url = build_link(call, owner, row.toolkit_slug, row.alias)[0]
    try:
        is_simulated = find_provider(call.services, row.provider).is_simulated
    except NotConfigured:
        is_simulated = False
    return {
        "id": row.id,
        "app_user_id": row.app_user_id,
        "toolkit_slug": row.toolkit_slug,
        "status": row.status,
        "connected_at": row.connected_at,
        "last_used_at": row.last_used_at,
        "alias": row.alias,
        "account_name": row.account_name,
        "scopes": row.scopes,
        "status_reason": row.status_reason,
        "connect_url": url,
        "simulated": is_simulated,
    }


async def _preview_disconnect(call: Call, app_id: AppId, id: str) -> str:
    del app_id
    row = await get_connection(call, id, find_user_id(call, None))
    account = quote_text(row.account_name)
    return f"It would disconnect the account {account} of {row.toolkit_slug}, of the app's user {row.app_user_id}."


@integrations.tool(
    "DELETE /connections/{id}",
    access=OF_APP,
    effect="destructive",
    raises=(ConnectionNotFound,),
    audit=Audit("integration.disconnect", action="delete", resource="integration_connection"),
    rest=Rest(status=204),
    guard=Guard(preview=_preview_disconnect, outcome=lambda _: "Disconnect an account of a user"),
)
async def integrations_disconnect(call: Call, app_id: AppId, id: ConnectionId) -> None:
    """Disconnect an account: its tokens are taken back at the service, and forgotten here."""
    row = await get_connection(call, id, find_user_id(call, None))
    await revoke(call, row)
    async with FREEZES.writing(call) as unit:
        await unit.execute(delete(connections).where(_columns.app_id == app_id, _columns.id == id))
    call.audit.resource_id = id
    about = {"toolkit": row.toolkit_slug, "user_id": row.app_user_id, "account_name": row.account_name}
    call.audit.data |= about
    await call.emit(DISCONNECTED, connection_id=id, **about)


async def revoke(call: Call, row: Row) -> None:
    """Takes an account's grant back at its service. Warns where the service does not confirm it."""
    try:
        toolkit = await load_enabled(call, row.toolkit_slug)
        provider = find_provider(call.services, row.provider)
        setting = build_setting(call.services.vault, toolkit)
        await provider.revoke(setting, build_connection(call.services.vault, row))
    except (ProviderBusy, NotConfigured, ToolkitNotEnabled):
        call.warn("The service has not confirmed that the tokens are void. They are forgotten here all the same.")
