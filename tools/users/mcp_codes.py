"""Codes on their way to an MCP client: each is good for one session of the user who agreed, for a minute."""

from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select, update

from baobab.runtime.oauth.errors import InvalidGrant
from baobab.runtime.oauth.requests import AuthorizationRequest
from baobab.storage.secrets import digest_token
from baobab.storage.sql.database import Unit
from baobab.tools.core import Call
from baobab.tools.users.tables import user_mcp_codes

LIFETIME = timedelta(minutes=1)
_LENGTH = 43
_columns = user_mcp_codes.c


async def issue_code(call: Call, unit: Unit, request: AuthorizationRequest, user_id: str) -> str:
    """Stores a code for a client that a user has let in, and returns it."""
    code = call.services.ids.secret(_LENGTH)
    names = ("client_id", "client_name", "redirect_uri", "redirect_given", "code_challenge")
    row = {name: getattr(request, name) for name in names}
    row |= {"app_id": call.require_app().id, "digest": digest_token(code), "user_id": user_id}
    row |= {"session_id": call.services.ids.uuid(), "expires_at": call.now + LIFETIME}
    await unit.execute(insert(user_mcp_codes), row)
    return code


async def read_code(call: Call, client_id: str, code: str) -> Any:
    """Returns the row of a client's code, also of a used one, in a transaction that precedes the call's.

    Raises InvalidGrant if there is none, or it has expired.
    """
    conditions = (_columns.app_id == call.require_app().id, _columns.digest == digest_token(code))
    async with call.stores.database.reading() as connection:
        row = (await connection.execute(select(user_mcp_codes).where(*conditions))).first()
    if row is None or row.client_id != client_id or row.expires_at <= call.now:
        raise InvalidGrant
    return row


async def spend_code(call: Call, unit: Unit, row: Any) -> bool:
    """Uses up a code. Returns False if it was used before."""
    is_unused = (_columns.app_id == row.app_id, _columns.digest == row.digest, _columns.used_at.is_(None))
    update_result = await unit.execute(update(user_mcp_codes).where(*is_unused).values(used_at=call.now))
    return bool(update_result.rowcount)
