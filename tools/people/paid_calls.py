"""Paid calls of a provider: the gate before, and after it the charge and the row of usage in one transaction."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid5

from sqlalchemy import insert, select, update

from baobab.storage.cancellation import run_to_completion
from baobab.storage.sql.database import Database, DatabaseUnavailable, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Account, AppKey, AppMigrating, Call, Services
from baobab.tools.core.limits.credits import Reservation, UnknownReservation, Usage
from baobab.tools.people.errors import ProviderError
from baobab.tools.people.slots import FREE, Price, Slot, list_headers
from baobab.tools.people.tables import FREEZES, UNCHARGED, usage

T = TypeVar("T")

GATE = 50_000_000
"""The balance that every paid call needs at least, in nano-dollars."""
_HELD_SECONDS = 300.0
_OF_RESERVATION = UUID("7e6e2c5b-8f0f-4b39-9a2b-53b1f6a0c9d4")
OK = 200


@dataclass(frozen=True, slots=True)
class Purchase(Generic[T]):
    """What a provider has answered, and what was charged for it in nano-dollars."""

    answer: T
    price: Price
    charged: int


Store = Callable[[Unit, Any], Awaitable[None]]
"""Writes something more in the transaction of the charge, such as a profile."""


async def pay_for(
    call: Call,
    slot: Slot,
    action: str,
    most: Price,
    ask: Callable[[], Awaitable[T]],
    price_of: Callable[[T], Price],
    *,
    network_url: str | None = None,
    store: Store | None = None,
    recorded_as: Callable[[T], int] = lambda _: OK,
) -> Purchase[T]:
    """Asks a provider and charges for the answer.

    Raises CreditsExhausted or BudgetExhausted before the provider is asked, AppMigrating, or the provider's error, for
    which nothing is charged. most: the price of the largest answer, which is reserved. recorded_as: the status of an
    answer in the log of usage.
    """
    async with call.reading() as execute:
        await FREEZES.require_thawed(execute, call.require_app().id)
    reservation = await reserve(call, action, max(GATE, most.cost), _HELD_SECONDS) if slot.is_charged else None
    # To the end even if the client has gone: the provider wants to be paid all the same.
    return await run_to_completion(
        _ask(call, slot, action, reservation, ask, price_of, network_url, store, recorded_as)
    )


async def reserve(call: Call, action: str, amount: int, ttl_seconds: float) -> Reservation:
    """Reserves an amount at the expense of the app's organisation. Raises CreditsExhausted or BudgetExhausted."""
    app, caller = call.require_app(), call.caller
    return await call.credits.reserve(
        app.organisation_id,
        amount,
        app_id=app.id,
        key_id=caller.key_id if isinstance(caller, (Account, AppKey)) else None,
        spender=call.context.spender,
        purpose=f"people.{action}",
        ttl_seconds=ttl_seconds,
    )


async def _ask(
    call: Call,
    slot: Slot,
    action: str,
    reservation: Reservation | None,
    ask: Callable[[], Awaitable[T]],
    price_of: Callable[[T], Price],
    network_url: str | None,
    store: Store | None,
    recorded_as: Callable[[T], int],
) -> Purchase[T]:
    try:
        answer = await ask()
    except BaseException as exc:
        if reservation is not None:
            # It expires by itself, and the provider's error is of more use than this one.
            with suppress(DatabaseUnavailable):
                await call.credits.release(reservation)
        if isinstance(exc, ProviderError):
            await _record_failure(call, slot, action, exc, network_url)
        raise
    price = price_of(answer)
    app_id, is_simulated = call.require_app().id, slot.provider.is_simulated
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        if await FREEZES.is_frozen(unit.execute, app_id):
            call.warn("The app is being moved: this call is charged, but missing in its log of usage.")
            charge = price.cost if is_simulated else await _charge(call, None, reservation, action, price)
            return Purchase(answer, price, charge)
        if store is not None:
            await store(unit, answer)
        row = build_usage_row(call, slot, action, price, 0, recorded_as(answer), network_url)
        if reservation is not None:
            # An attempt at an approved call that comes again has the reservation of the one before it.
            row["id"] = str(uuid5(_OF_RESERVATION, reservation.id))
        if is_simulated:
            row["charged"] = price.cost
        elif reservation is not None and unit.database is call.services.database:
            row["charged"] = await _charge(call, unit, reservation, action, price)
        elif reservation is not None:
            row["reservation_id"] = reservation.id
        await unit.execute(build_upsert(unit.database.dialect, usage).values(row).on_conflict_do_nothing())
    charge = row["charged"]
    if row["reservation_id"] is not None:
        # Whatever ends this process here, the sweep finds the row and charges it.
        charge = await charge_row(call.services, call.stores.database, app_id, row["id"])
    return Purchase(answer, price, charge)


async def _charge(call: Call, unit: Unit | None, reservation: Reservation | None, action: str, price: Price) -> int:
    """Charges a price and returns what was charged. unit: a transaction of the credits' database, if there is one."""
    if reservation is None:
        return 0
    return await call.credits.settle(reservation, price.cost, Usage(f"people/{action}"), capped=True, unit=unit)


async def charge_row(services: Services, database: Database, app_id: str, row_id: str) -> int:
    """Charges a row of the log of usage that is in another database than the credits, and returns what was charged.

    It may be called again: a reservation is charged once.
    """
    is_row = (usage.c.app_id == app_id, usage.c.id == row_id)
    async with database.reading() as connection:
        row = (await connection.execute(select(usage).where(*is_row))).first()
    if row is None or row.reservation_id is None:
        return 0 if row is None else int(row.charged)
    organisation_id = (await services.directory.app(app_id)).organisation_id
    reservation = Reservation(row.reservation_id, organisation_id, 0)
    try:
        charge = await services.credits.settle(reservation, row.cost, Usage(f"people/{row.action}"), capped=True)
    except UnknownReservation:
        # It was settled so long ago that the ledger has forgotten it.
        charge = row.cost
    async with database.writing_unit(lock=app_id) as unit:
        await unit.execute(update(usage).where(*is_row, UNCHARGED).values(charged=charge, reservation_id=None))
    return charge


async def _record_failure(call: Call, slot: Slot, action: str, error: ProviderError, network_url: str | None) -> None:
    app_id = call.require_app().id
    with suppress(AppMigrating):
        async with call.stores.database.writing_unit(lock=app_id) as unit:
            await FREEZES.require_thawed(unit.execute, app_id)
            row = build_usage_row(call, slot, f"{action}_error", FREE, 0, error.status, network_url)
            await unit.execute(insert(usage), row)


def build_usage_row(
    call: Call, slot: Slot, action: str, price: Price, charged: int, status: int, network_url: str | None
) -> dict[str, Any]:
    """Builds a row of the log of usage. charged: in nano-dollars."""
    return {
        "app_id": call.require_app().id,
        "id": call.services.ids.uuid(),
        "action": action,
        "credits": price.credits,
        "cost": price.cost,
        "charged": charged,
        "response_status": status,
        "network_url": network_url,
        "simulated": slot.provider.is_simulated,
        "created_at": call.now,
        "reservation_id": None,
    }


def set_headers(call: Call, slot: Slot, price: Price, charged: int, *, is_cached: bool | None = None) -> None:
    """Sets the headers that every answer of people has."""
    headers = list_headers(slot.name, price, charged, is_cached=is_cached)
    call.headers = [*(call.headers or ()), *((name.encode(), value.encode()) for name, value in headers.items())]
