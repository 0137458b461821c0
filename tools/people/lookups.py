"""E-mail lookups: queued at a provider, which sends what it finds to a secret address, and charged once.

Whoever changes the status of a lookup holds the lock of its app, so that a result counts once whatever comes together.
"""

import hashlib
import re
import secrets
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import delete, insert, select, update

from baobab.storage.sql.database import Database, Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Call, Services
from baobab.tools.core.limits.credits import Reservation, Usage
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.people.errors import EmailsDisabled, LookupNotFound
from baobab.tools.people.paid_calls import OK, pay_for, reserve, set_headers
from baobab.tools.people.slots import Price, Slot, Slots
from baobab.tools.people.tables import FREEZES, lookups, usage

RESULT = "profile_email_resolved"
SIMULATED_CALLBACK = "people_simulated_callback"
_SIMULATED_SECONDS = 2.0
_RESERVED_SECONDS = 26 * 3600.0
_OF_LOOKUP = UUID("0d8a3c52-6c1e-4f0b-9a57-2b1f6f1f7c11")
_EMAIL = re.compile(r"[^\s@<>\"',;:\x00-\x1f]+@[^\s@<>\"',;:\x00-\x1f]+\.[^\s@<>\"',;:\x00-\x1f.]+")
_LONGEST_EMAIL = 320
_columns = lookups.c


async def queue_lookup(call: Call, url: str) -> Any:
    """Queues a lookup at the provider, charges for that, and returns the answer."""
    slots = call.services.part(Slots)
    slot = slots.find("profile_email")
    if not slot.provider.is_simulated and not slots.takes_callbacks:
        raise EmailsDisabled
    call.audit.resource_id = url[:200]
    lookup_id, token = call.services.ids.uuid(), secrets.token_urlsafe(32)
    app_id = call.require_app().id
    callback_url = f"{call.services.options.base_url}/v1/{app_id}/people/email-callback/{lookup_id}/{token}"

    async def ask() -> None:
        # The row is there first: the callback may be faster than the answer.
        await _insert_lookup(call, slot, url, lookup_id, token)
        try:
            await slot.provider.queue_email(url, callback_url)
        except BaseException:
            await _delete_lookup(call, lookup_id)
            raise

    async def store(unit: Unit, _: None) -> None:
        credit_sum = _columns.credits + slot.queue_price.credits
        await unit.execute(update(lookups).where(_is_lookup(app_id, lookup_id)).values(credits=credit_sum))

    purchase = await pay_for(
        call,
        slot,
        "profile_email_queue",
        slot.queue_price,
        ask,
        lambda _: slot.queue_price,
        network_url=url,
        store=store,
    )
    set_headers(call, slot, purchase.price, purchase.charged)
    answer = {"lookupId": lookup_id, "status": "pending", "usage": {"creditsConsumed": purchase.price.credits}}
    return mark_simulated(call, answer) if slot.provider.is_simulated else answer


async def take_result(
    services: Services, database: Database, app_id: str, lookup_id: str, token: str, email: str
) -> None:
    """Takes the result of a pending lookup, once; a later one changes nothing. Raises LookupNotFound, AppMigrating.

    email: empty if none was found.
    """
    # Strangers who guess must not hold up the app's writers.
    async with database.reading() as connection:
        await _require_lookup(connection.execute, app_id, lookup_id, token)
    async with database.writing_unit(lock=app_id) as unit:
        row = await _require_lookup(unit.execute, app_id, lookup_id, token)
        if row.status != "pending":
            return
        await FREEZES.require_thawed(unit.execute, app_id)
        await _conclude(services, unit, row, email)
    if unit.database is not services.database:
        await settle_lookup(services, database, app_id, lookup_id)


async def _require_lookup(execute: Execute, app_id: str, lookup_id: str, token: str) -> Any:
    row = (await execute(select(lookups).where(_is_lookup(app_id, lookup_id)))).first()
    if row is None or not secrets.compare_digest(row.token_digest, digest_token(token)):
        raise LookupNotFound
    return row


async def settle_lookup(services: Services, database: Database, app_id: str, lookup_id: str) -> None:
    """Charges the result of a lookup whose rows are in another database than the credits. May be called again."""
    is_unsettled = (_is_lookup(app_id, lookup_id), _columns.settled_at.is_(None), _columns.ended_at.is_not(None))
    async with database.reading() as connection:
        row = (await connection.execute(select(lookups).where(*is_unsettled))).first()
    if row is None:
        return
    charge = await _charge(services, None, row)
    async with database.writing_unit(lock=app_id) as unit:
        await _record_charge(services, unit, row, charge)
        await unit.execute(update(lookups).where(*is_unsettled).values(settled_at=services.clock.now()))


async def _conclude(services: Services, unit: Unit, row: Any, email: str) -> None:
    """Ends a lookup; charges its result in the same transaction, if the credits are in the same database."""
    now = services.clock.now()
    values: dict[str, Any] = {"status": "failed", "ended_at": now, "settled_at": now}
    if email:
        values |= {"status": "resolved", "email": email, "credits": _columns.credits + row.result_credits}
        if unit.database is services.database:
            await _record_charge(services, unit, row, await _charge(services, unit, row))
        else:
            values["settled_at"] = None
    await unit.execute(update(lookups).where(_is_lookup(row.app_id, row.id)).values(**values))


async def _charge(services: Services, unit: Unit | None, row: Any) -> int:
    if row.simulated or row.reservation_id is None:
        return int(row.result_cost)
    reservation = Reservation(row.reservation_id, row.organisation_id, 0)
    return await services.credits.settle(
        reservation, row.result_cost, Usage(f"people/{RESULT}"), capped=True, unit=unit
    )


async def _record_charge(services: Services, unit: Unit, row: Any, charged: int) -> None:
    usage_row = {
        "app_id": row.app_id,
        "id": str(uuid5(_OF_LOOKUP, row.id)),
        "action": RESULT,
        "credits": row.result_credits,
        "cost": row.result_cost,
        "charged": charged,
        "response_status": OK,
        "network_url": row.network_url,
        "simulated": row.simulated,
        "created_at": services.clock.now(),
        "reservation_id": None,
    }
    await unit.execute(build_upsert(unit.database.dialect, usage).values(usage_row).on_conflict_do_nothing())


async def _insert_lookup(call: Call, slot: Slot, url: str, lookup_id: str, token: str) -> None:
    # It holds nothing, and is what makes the charge of the result happen once.
    reservation = await reserve(call, RESULT, 0, _RESERVED_SECONDS) if slot.is_charged else None
    price: Price = slot.result_price
    app = call.require_app()
    row = {
        "app_id": app.id,
        "id": lookup_id,
        "organisation_id": app.organisation_id,
        "network_url": url,
        "status": "pending",
        "token_digest": digest_token(token),
        "reservation_id": None if reservation is None else reservation.id,
        "credits": 0,
        "result_credits": price.credits,
        "result_cost": price.cost,
        "simulated": slot.provider.is_simulated,
        "created_at": call.now,
    }
    async with call.stores.database.writing_unit(lock=app.id) as unit:
        await FREEZES.require_thawed(unit.execute, app.id)
        await unit.execute(insert(lookups), row)
        if slot.provider.is_simulated:
            arguments = {"app_id": app.id, "lookup_id": lookup_id, "token": token, "url": url}
            await call.services.jobs.enqueue(
                unit, SIMULATED_CALLBACK, arguments, delay=_SIMULATED_SECONDS, tenant=app.organisation_id
            )


async def _delete_lookup(call: Call, lookup_id: str) -> None:
    """Deletes a lookup that could not be queued. A result that comes all the same is not known, and costs nothing."""
    app_id = call.require_app().id
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await unit.execute(delete(lookups).where(_is_lookup(app_id, lookup_id), _columns.status == "pending"))


def read_email(payload: Any) -> str:
    """Returns the address in the body of a callback, whose other fields are ignored; empty if there is none."""
    if not isinstance(payload, dict):
        return ""
    address = payload.get("email")
    if not address:
        several = payload.get("emails")
        address = several[0] if isinstance(several, list) and several else ""
    is_email = isinstance(address, str) and len(address) <= _LONGEST_EMAIL and _EMAIL.fullmatch(address)
    return address if isinstance(address, str) and is_email else ""


def digest_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _is_lookup(app_id: str, lookup_id: str) -> Any:
    return (_columns.app_id == app_id) & (_columns.id == lookup_id)
