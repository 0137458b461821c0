"""/ws-ticket and /stream: which rows have changed, as it happens."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import delete, insert, select

from baobab.storage.secrets import digest_token
from baobab.tools.core import Account, Call, Forbidden, Guard, Mcp, Rest, Secret, Unauthenticated
from baobab.tools.core.auth import key_limits
from baobab.tools.core.auth.callers import ScopedKey
from baobab.tools.core.stream import Stream
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, READERS, organisation_of, require_reader
from baobab.tools.substrate.change_feed import follow_changes
from baobab.tools.substrate.errors import TicketInvalid
from baobab.tools.substrate.schemas import StreamTicket
from baobab.tools.substrate.toolset import substrate

_LIFETIME_SECONDS = 60
_LENGTH = 40

_tickets = tables.stream_tickets
Ticket = Annotated[str, Secret(100), Field(description="A ticket; it opens one stream.")]
Token = Annotated[str, Secret(8192), Field(description="A key or a token, where no header can be sent.")]


@substrate.tool(
    "POST /ws-ticket",
    access=CALLERS,
    effect="write",
    guard=Guard(grants=True),
)
async def substrate_ws_ticket(call: Call) -> StreamTicket:
    """Get a ticket that opens one stream of changes within a minute, for browsers, which can send no header there."""
    ticket = f"wst_{call.services.ids.secret(_LENGTH)}"
    caller = call.caller
    assert isinstance(caller, (Account, ScopedKey))
    reader = {"account_id": caller.account_id, "key_id": caller.key_id}
    row = {"organisation_id": organisation_of(call), "digest": digest_token(ticket), **reader}
    await call.execute(insert(_tickets), {**row, "expires_at": call.now + timedelta(seconds=_LIFETIME_SECONDS)})
    return {"ticket": ticket, "expires_in": _LIFETIME_SECONDS}


@substrate.tool(
    "GET /stream",
    access=READERS,
    effect="read",
    raises=(TicketInvalid,),
    rest=Rest(socket=True),
    mcp=Mcp(offered=False),
)
async def substrate_stream(call: Call, ticket: Ticket = "", token: Token = "") -> str:
    """Follow over a WebSocket which rows change: `hello`, then `{tbl, op, id, org}` for each. Read them by their ids.

    ticket: from op:substrate_ws_ticket; it opens one stream.
    token: a key or a token; you can send it in the header `Authorization` instead.
    """
    organisation_id, check = await _admit(call, ticket, token)
    frames = follow_changes(call.services, organisation_id, check)
    return cast(str, Stream(frames, "application/json", subject=organisation_id))


async def _admit(call: Call, ticket: str, token: str) -> tuple[str, Callable[[], Awaitable[Any]]]:
    """Returns the organisation whose stream is opened, and a check that runs again and again while it is open."""
    services, caller = call.services, call.caller
    if isinstance(caller, (Account, ScopedKey)):
        reader_account = caller
        return caller.organisation_id, lambda: require_reader(
            services, reader_account.organisation_id, reader_account.account_id
        )
    if ticket:
        reader = await _use_ticket(call, ticket)
        await require_reader(services, *reader)
        return reader[0], lambda: require_reader(services, *reader)
    if not token:
        raise Unauthenticated

    async def check_token() -> str:
        bearer: Any = await services.credentials.caller(b"Bearer " + token.encode())
        if not CALLERS.admits(bearer):
            raise Forbidden("The token does not open the substrate.")
        key_limits.check_limits(bearer, call.tool, None)
        await require_reader(services, bearer.organisation_id, bearer.account_id)
        organisation_id: str = bearer.organisation_id
        return organisation_id

    return await check_token(), check_token


async def _use_ticket(call: Call, ticket: str) -> tuple[str, str, str | None]:
    """Uses a ticket up, and returns the organisation, the account and the key that it was made for. Of two that come
    with it at the same time, one gets in.
    """
    database = call.services.database
    is_valid = (_tickets.c.digest == digest_token(ticket), _tickets.c.expires_at > call.now)
    # Looked at before anything is written: strangers may send anything, and must not take the write lock.
    async with database.reading() as connection:
        row: Any = (await connection.execute(select(_tickets).where(*is_valid))).first()
    if row is None:
        raise TicketInvalid
    async with database.writing(lock=None) as connection:
        delete_ticket = delete(_tickets).where(*is_valid, _tickets.c.organisation_id == row.organisation_id)
        if (await connection.execute(delete_ticket)).rowcount != 1:
            raise TicketInvalid
    return row.organisation_id, row.account_id, row.key_id
