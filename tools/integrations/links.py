"""Links: how a user connects an account, from the address that the app sends the browser to, to the callback.

An address holds a sealed ticket, which says for which user of which app it is, and is good for one hour and for one
browser: the one that opens it gets a cookie, and the callback takes no other. What comes back from the service is the
state, sealed too. Neither is kept before a person has pressed the button of our page.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from sqlalchemy import delete, insert, select, update

from baobab.runtime.integrations.provider import (
    Connected,
    ConnectFailed,
    LinkOrder,
    ProviderBusy,
)
from baobab.storage.cancellation import run_to_completion
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core import Call
from baobab.tools.core.cookies import name_cookie
from baobab.tools.core.redirects import is_listed
from baobab.tools.core.simulators import is_loopback
from baobab.tools.integrations.errors import (
    LinkRefused,
    NotConfigured,
    RedirectUrlRefused,
    ToolkitNotEnabled,
    UpstreamFailed,
)
from baobab.tools.integrations.grants import name_user, seal_grant
from baobab.tools.integrations.schemas import Row
from baobab.tools.integrations.subject import Subject
from baobab.tools.integrations.tables import FREEZES, connections
from baobab.tools.integrations.toolkits import build_setting, find_provider, load_enabled, translate_busy

COOKIE = "baobab_connect_"
OPEN_SECONDS = 3600
_TICKET, _STATE = "integration link", "integration state"
_columns = connections.c


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a link is for. id: of the connection that it makes."""

    id: str
    app_id: str
    user_id: str
    user_name: str
    toolkit: str
    alias: str | None
    redirect_url: str | None
    expires_at: float


@dataclass(frozen=True, slots=True)
class State:
    """What comes back to the callback."""

    id: str
    app_id: str
    user_id: str
    toolkit: str
    redirect_url: str | None
    expires_at: float


class StateRefused(Exception):
    """A callback that connects nothing. code: as the contract has it. state: where it could be read."""

    def __init__(self, code: str, state: State | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.state = state


def check_redirect(call: Call, address: str | None) -> None:
    """Raises RedirectUrlRefused for an address that is not the app's (document 4, A5)."""
    own_host = urlsplit(call.services.options.base_url).hostname or ""
    if address is not None and not is_listed(call, address, localhost=is_loopback(own_host)):
        raise RedirectUrlRefused


def build_link(
    call: Call, subject: Subject, toolkit: str, alias: str | None = None, redirect_url: str | None = None
) -> tuple[str, str]:
    """Returns the address that a user's browser is sent to, and the id that the connection will have."""
    services, app = call.services, call.require_app()
    ticket = Ticket(
        services.ids.uuid(),
        app.id,
        subject.id,
        subject.name,
        toolkit,
        alias,
        redirect_url,
        services.clock.time() + OPEN_SECONDS,
    )
    query = urlencode({"ticket": services.vault.seal(json.dumps(asdict(ticket)).encode(), _TICKET)})
    return f"{services.options.base_url}/auth/{app.id}/connect?{query}", ticket.id


def open_ticket(call: Call, text: str) -> Ticket:
    """Returns the ticket of a link to the app. Raises LinkRefused."""
    try:
        ticket = Ticket(**json.loads(call.services.vault.open(text, _TICKET)))
    except (SecretUnreadable, ValueError, TypeError) as exc:
        raise LinkRefused from exc
    if ticket.app_id != call.require_app().id or ticket.expires_at <= call.services.clock.time():
        raise LinkRefused
    return ticket


async def open_link(call: Call, ticket: Ticket) -> tuple[str, str]:
    """Returns the service's consent page, and what the cookie of this browser holds. A link is opened once.

    Raises LinkRefused, ToolkitNotEnabled, NotConfigured or UpstreamFailed.
    """
    services = call.services
    row = await load_enabled(call, ticket.toolkit)
    provider = find_provider(services, row.provider)
    query = select(_columns.id).where(_columns.app_id == ticket.app_id, _columns.id == ticket.id)
    if (await call.read(query)).first() is not None:
        raise LinkRefused
    browser, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    expires_at = services.clock.time() + OPEN_SECONDS
    state = State(ticket.id, ticket.app_id, ticket.user_id, ticket.toolkit, ticket.redirect_url, expires_at)
    sealed_state = services.vault.seal(json.dumps(asdict(state)).encode(), _STATE)
    order = LinkOrder(
        build_setting(services.vault, row),
        name_user(ticket.app_id, ticket.user_id),
        build_callback(call),
        sealed_state,
        verifier,
        ticket.alias,
    )
    try:
        link = await provider.begin(order)
    except ProviderBusy as busy:
        raise translate_busy(busy) from busy
    except ConnectFailed as exc:
        raise UpstreamFailed(str(exc)) from exc
    values: dict[str, Any] = {
        "app_id": ticket.app_id,
        "id": ticket.id,
        "app_user_id": ticket.user_id,
        "toolkit_slug": ticket.toolkit,
        "alias": ticket.alias,
        "provider": provider.name,
        "status": "initiated",
        "scopes": list(row.scopes),
        "external_id": link.external_id,
        "browser_digest": _digest(browser),
        "verifier": services.vault.seal(verifier.encode(), _verifier_context(ticket.id)),
        "made": [],
        "created_at": call.now,
    }
    async with FREEZES.writing(call) as unit:
        # Under the app's lock: of two browsers that open it at once, the second is refused.
        if (await unit.execute(query)).first() is not None:
            raise LinkRefused
        await unit.execute(insert(connections), values)
    return link.url, browser


def build_callback(call: Call) -> str:
    """Returns the address to which services send browsers back; it is registered there."""
    return f"{call.services.options.base_url}/v1/{call.require_app().id}/integrations/callback"


def name_link_cookie(call: Call, connection_id: str) -> str:
    """Returns the name of the cookie of a link: several may be open in one browser."""
    name = COOKIE + hashlib.sha256(connection_id.encode()).hexdigest()[:12]
    return name_cookie(call.services.options.base_url, name)


async def finish_link(
    call: Call, sealed_state: str | None, query: Mapping[str, str], cookies: str
) -> tuple[State, Row]:
    """Returns the state that a browser has brought back, and the row of the account that is connected now.

    Raises StateRefused. query: what the service has said.
    """
    state = _open_state(call, sealed_state)
    row = await _claim(call, state, cookies)
    try:
        # To the end even if the browser has gone: the code is good for one exchange.
        account = await run_to_completion(_ask(call, state, row, query))
    except StateRefused:
        async with call.stores.database.writing_unit(lock=state.app_id) as unit:
            await unit.execute(delete(connections).where(_is(state), _columns.status == "finishing"))
        raise
    return state, await _keep(call, state, row, account)


def _open_state(call: Call, text: str | None) -> State:
    if not text:
        raise StateRefused("missing_state")
    try:
        state = State(**json.loads(call.services.vault.open(text, _STATE)))
    except (SecretUnreadable, ValueError, TypeError) as exc:
        raise StateRefused("invalid_state") from exc
    if state.app_id != call.require_app().id:
        raise StateRefused("app_mismatch")
    if state.expires_at <= call.services.clock.time():
        raise StateRefused("invalid_state", state)
    return state


async def _claim(call: Call, state: State, cookies: str) -> Row:
    """Takes the row of a link, once, for the browser that has opened it."""
    # Read by hand: the library's parser drops all cookies after one that it does not like.
    pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
    name = name_link_cookie(call, state.id)
    browser = next((value for cookie, _, value in pairs if cookie == name), "")
    async with call.stores.database.writing_unit(lock=state.app_id) as unit:
        await FREEZES.require_thawed(unit.execute, state.app_id)
        row = (await unit.execute(select(connections).where(_is(state), _columns.status == "initiated"))).first()
        is_this = row is not None and row.app_user_id == state.user_id and row.toolkit_slug == state.toolkit
        if row is None or not is_this or not hmac.compare_digest(row.browser_digest or "", _digest(browser)):
            raise StateRefused("invalid_state", state)
        await unit.execute(update(connections).where(_is(state)).values(status="finishing"))
    return row


async def _ask(call: Call, state: State, row: Row, query: Mapping[str, str]) -> Connected:
    services = call.services
    if query.get("error"):
        raise StateRefused("connection_failed", state)
    try:
        toolkit = await load_enabled(call, state.toolkit)
        provider = find_provider(services, row.provider)
        verifier = services.vault.open(row.verifier, _verifier_context(row.id)).decode()
        user = name_user(state.app_id, state.user_id)
        order = LinkOrder(build_setting(services.vault, toolkit), user, build_callback(call), "", verifier, row.alias)
        return await provider.finish(order, query, row.external_id)
    except (ConnectFailed, ProviderBusy, ToolkitNotEnabled, NotConfigured) as exc:
        call.audit.data["reason"] = str(exc)[:300]
        raise StateRefused("connection_failed", state) from exc


async def _keep(call: Call, state: State, row: Row, account: Connected) -> Row:
    """Writes what was connected. An account that its user had connected before is the same one, with a new grant."""
    values: dict[str, Any] = {
        "status": "active",
        "status_reason": None,
        "account_id": account.account_id,
        "account_name": account.account_name[:300],
        "scopes": list(account.scopes),
        "external_id": account.external_id or row.external_id,
        "browser_digest": None,
        "verifier": None,
        "connected_at": call.now,
        **seal_grant(call.services.vault, row.id, account.grant),
    }
    async with FREEZES.writing(call) as unit:
        if account.account_id is not None:
            is_same = (
                _columns.app_id == state.app_id,
                _columns.app_user_id == state.user_id,
                _columns.toolkit_slug == state.toolkit,
                _columns.account_id == account.account_id,
                _columns.id != state.id,
            )
            earlier = (await unit.execute(select(connections).where(*is_same))).first()
            if earlier is not None:
                values |= {"alias": row.alias or earlier.alias, "made": earlier.made}
                await unit.execute(delete(connections).where(*is_same))
        await unit.execute(update(connections).where(_is(state)).values(**values))
        kept_row = (await unit.execute(select(connections).where(_is(state)))).first()
    assert kept_row is not None
    return kept_row


def _is(state: State) -> Any:
    return (_columns.app_id == state.app_id) & (_columns.id == state.id)


def _verifier_context(connection_id: str) -> str:
    return f"integration_connections.verifier:{connection_id}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
