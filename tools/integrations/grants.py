"""Connected accounts as rows: their tokens, sealed, and what providers and answers are told of them."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select

from baobab.runtime.integrations.provider import Connection, Grant
from baobab.storage.secrets import Vault
from baobab.tools.core import Call
from baobab.tools.integrations.errors import AccountAmbiguous, ConnectionNotFound
from baobab.tools.integrations.schemas import Row
from baobab.tools.integrations.tables import connections

SHOWN = ("active", "inactive", "expired")
"""The states of an account that was connected."""
_columns = connections.c


def seal_grant(vault: Vault, row_id: str, grant: Grant | None) -> dict[str, Any]:
    """Returns the columns that keep a grant."""
    if grant is None:
        return {"grant": None, "grant_expires_at": None}
    content = {"access_token": grant.access_token, "refresh_token": grant.refresh_token}
    sealed_grant = vault.seal(json.dumps(content).encode(), _context(row_id))
    return {"grant": sealed_grant, "grant_expires_at": grant.expires_at}


def open_grant(vault: Vault, row: Row) -> Grant | None:
    """Returns the grant of a row."""
    if row.grant is None:
        return None
    content = json.loads(vault.open(row.grant, _context(row.id)))
    return Grant(content["access_token"], content["refresh_token"], row.grant_expires_at)


def build_connection(vault: Vault, row: Row) -> Connection:
    """Returns a connected account as its provider is told of it."""
    grant = open_grant(vault, row)
    user = name_user(row.app_id, row.app_user_id)
    return Connection(row.id, user, row.account_name or "", grant, row.external_id, row.made)


def name_user(app_id: str, user_id: str) -> str:
    """Returns what providers call a user: users of different apps are different people there."""
    return f"{app_id}:{user_id}"


async def list_connections(
    call: Call, user_id: str | None, toolkit: str | None = None, statuses: Sequence[str] = SHOWN
) -> Sequence[Row]:
    """Lists the accounts of a user of the app, or of all users, those connected first first."""
    query = select(connections).where(_columns.app_id == call.require_app().id, _columns.status.in_(statuses))
    if user_id is not None:
        query = query.where(_columns.app_user_id == user_id)
    if toolkit is not None:
        query = query.where(_columns.toolkit_slug == toolkit)
    return (await call.read(query.order_by(_columns.created_at, _columns.id))).all()


async def get_connection(call: Call, connection_id: str, user_id: str | None) -> Row:
    """Returns a connected account of the user, or of any user. Raises ConnectionNotFound."""
    query = select(connections).where(
        _columns.app_id == call.require_app().id, _columns.id == connection_id, _columns.status.in_(SHOWN)
    )
    if user_id is not None:
        query = query.where(_columns.app_user_id == user_id)
    row = (await call.read(query)).first()
    if row is None:
        raise ConnectionNotFound
    return row


def choose_account(rows: Sequence[Row], account: str | None) -> Row | None:
    """Returns the account that a call means; None where there is none. Raises AccountAmbiguous.

    One that is active goes before others. Without a name, a user's only account of the toolkit is meant.
    """
    if account is not None:
        rows = [row for row in rows if account in (row.id, row.alias, row.account_name, row.account_id)]
    active_rows = [row for row in rows if row.status == "active"]
    if len(active_rows) > 1:
        accounts = [{"id": row.id, "alias": row.alias, "account_name": row.account_name} for row in active_rows]
        raise AccountAmbiguous(details={"accounts": accounts})
    return next(iter(active_rows or rows), None)


def expires_before(row: Row, moment: datetime) -> bool:
    """Returns whether the access token of a row ends before a time."""
    return bool(row.grant_expires_at is not None and row.grant_expires_at <= moment)


def _context(row_id: str) -> str:
    return f"integration_connections.grant:{row_id}"
