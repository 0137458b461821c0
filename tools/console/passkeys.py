"""Passkeys of accounts: with them people sign in to the console."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import exists, select, update

from baobab.runtime.passkeys import Ceremonies, PasskeyRefused, PasskeysUnavailable, Site
from baobab.storage.sql.tables import build_upsert
from baobab.tools.console.tables import console_passkeys as rows
from baobab.tools.console.tables import console_spent_attempts
from baobab.tools.core import Call, Services

MOST_PASSKEYS = 20


def get_ceremonies(services: Services) -> Ceremonies:
    return Ceremonies(services.vault, services.clock.time, "console")


def find_site(services: Services) -> Site:
    """Returns the site of the console. Raises PasskeysUnavailable where browsers have no passkeys."""
    return Site.parse(services.options.base_url)


async def begin_sign_in(services: Services) -> tuple[Any, str] | None:
    """Returns what a browser is asked for, and the state; None where no account could answer."""
    try:
        site = find_site(services)
    except PasskeysUnavailable:
        return None
    async with services.database.reading() as connection:
        if not await connection.scalar(select(exists().where(rows.c.rp_id == site.rp_id))):
            return None
    return await get_ceremonies(services).begin_sign_in(site)


async def list_own(call: Call) -> Sequence[Any]:
    """Returns the rows of the account's passkeys, the newest first."""
    query = select(rows).where(rows.c.account_id == call.account.account_id)
    return (await call.execute(query.order_by(rows.c.created_at.desc(), rows.c.id))).all()


async def use_passkey(call: Call, state: str, credential: Mapping[str, Any]) -> str:
    """Verifies what a browser has answered, once, and returns the account. Raises PasskeyRefused."""
    attempt = await get_ceremonies(call.services).open_attempt(state, dict(credential))
    is_passkey = (rows.c.credential_id == attempt.credential_id, rows.c.rp_id == attempt.rp_id)
    row: Any = (await call.execute(select(rows).where(*is_passkey).with_for_update())).first()
    if row is None or attempt.owner_id != row.account_id:
        raise PasskeyRefused
    count = await attempt.verify(row.public_key, row.sign_count)
    spending = build_upsert(call.unit.database.dialect, console_spent_attempts).on_conflict_do_nothing()
    spent_state = {"digest": attempt.digest, "used_at": call.now}
    if not (await call.execute(spending.values(spent_state))).rowcount:
        raise PasskeyRefused
    use_values = {"sign_count": count, "last_used_at": call.now}
    await call.execute(update(rows).where(rows.c.id == row.id).values(use_values))
    return str(row.account_id)
