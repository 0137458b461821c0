"""Names of people and keys beside their ids, for those who read who did what."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from baobab.storage.sql.database import Execute
from baobab.tools.core.auth.tables import accounts, api_keys
from baobab.tools.core.guard.escaping import escape_name, escape_text

_KEY, _USER = "key", "app_user"


async def load_account_names(execute: Execute, ids: Iterable[str]) -> dict[str, str]:
    """Returns the names of accounts by id: the display name, or else the address."""
    query = select(accounts.c.id, accounts.c.name, accounts.c.email).where(accounts.c.id.in_(set(ids)))
    return {row.id: escape_text(row.name or row.email) for row in (await execute(query)).all()}


async def load_key_names(execute: Execute, ids: Iterable[str]) -> dict[str, str]:
    """Returns what keys are called, revoked ones among them, by id, and whose they are."""
    query = select(api_keys.c.id, api_keys.c.name, api_keys.c.account_id).where(api_keys.c.id.in_(set(ids)))
    rows = (await execute(query)).all()
    owners = await load_account_names(execute, [row.account_id for row in rows if row.account_id])
    return {row.id: _name_key(row.name, owners.get(row.account_id)) for row in rows}


def _name_key(name: str, owner: str | None) -> str:
    return f"the key {escape_name(name)}" if owner is None else f"{owner}, through the key {escape_name(name)}"


async def find_name(execute: Execute, credential: str | None) -> str | None:
    """Returns the name behind a credential, as `proposer_name` and `person` write it, such as `key:<id>`; None if it is
    gone, or nobody in particular.
    """
    kind, _, id_ = (credential or "").partition(":")
    if kind == _KEY:
        return (await load_key_names(execute, [id_])).get(id_)
    if kind in (_USER, "user"):
        return f"the app's user {escape_name(id_)}"
    return (await load_account_names(execute, [id_])).get(id_)


async def find_decider(execute: Execute, row: Any) -> str | None:
    """Returns the name of whoever decided in a row of `approvals`; None where nobody did."""
    return None if row.decided_by is None else await find_name(execute, row.decided_with)
