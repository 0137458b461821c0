"""Reads and inserts the rows of users."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import Call, Services
from baobab.tools.users.errors import UserExists
from baobab.tools.users.second_factor import delete_factors
from baobab.tools.users.tables import user_identities, user_mcp_codes, user_sessions, users


async def find_user(
    execute: Execute, app_id: str, *, email: str | None = None, user_id: str | None = None
) -> dict[str, Any] | None:
    """Returns the row of a user by address or id; None if the app has no such user."""
    condition = users.c.email == email if user_id is None else users.c.id == user_id
    row = (await execute(select(users).where(users.c.app_id == app_id, condition))).mappings().first()
    return None if row is None else dict(row)


async def read_user(call: Call, *, email: str | None = None, user_id: str | None = None) -> dict[str, Any] | None:
    """Does the same in a transaction that only reads, before the call's own begins."""
    async with call.stores.database.reading() as connection:
        return await find_user(connection.execute, call.require_app().id, email=email, user_id=user_id)


def build_user(services: Services, app_id: str, email: str | None, provider: str, **further: Any) -> dict[str, Any]:
    """Builds the row of a new user. provider: how the user came; further: columns that are known besides."""
    unset = ("avatar_url", "provider_uid", "password_hash", "banned_at", "ban_reason", "last_sign_in_at")
    row: dict[str, Any] = dict.fromkeys(unset)
    row |= {"app_id": app_id, "id": services.ids.uuid(), "email": email, "provider": provider, "role": "user"}
    now = services.clock.now()
    return {**row, "email_verified": False, "display_name": "", "created_at": now, **further}


async def insert_user(unit: Unit, row: dict[str, Any]) -> None:
    """Inserts a user. Raises UserExists if the address has one."""
    try:
        await unit.execute(insert(users), row)
    except IntegrityError as exc:
        raise UserExists from exc


async def delete_users(execute: Execute, app_id: str, user_ids: Sequence[str]) -> None:
    """Deletes users with their identities, sessions and factors."""
    await delete_factors(execute, app_id, user_ids)
    for table in (user_identities, user_sessions, user_mcp_codes):
        await execute(delete(table).where(table.c.app_id == app_id, table.c.user_id.in_(user_ids)))
    await execute(delete(users).where(users.c.app_id == app_id, users.c.id.in_(user_ids)))
