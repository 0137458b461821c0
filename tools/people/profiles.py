"""Profiles: read from the cache, else from the provider."""

from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import insert, select

from baobab.storage.sql.database import Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Call
from baobab.tools.core.limits.money import usd
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.people.addresses import cache_key
from baobab.tools.people.errors import ProviderError
from baobab.tools.people.paid_calls import OK, build_usage_row, pay_for, set_headers
from baobab.tools.people.slots import FREE, Slot, Slots
from baobab.tools.people.tables import FREEZES, profiles, usage

Status = Literal["ok", "not_found", "failed"]
KEPT = {"ok": timedelta(days=30), "not_found": timedelta(days=7), "failed": timedelta(hours=1)}
"""How long a result is kept. One that failed is asked for again: its row only says that it did."""
NOT_FOUND = 404


async def read_profile(call: Call, url: str, *, force: bool) -> Any:
    """Reads the profile at a normalised address. force: ask the provider whatever the cache has."""
    slot = call.services.part(Slots).find("profile")
    call.audit.resource_id = url[:200]
    row = None if force else await _find_cached(call, slot, url)
    if row is not None:
        async with FREEZES.writing(call) as unit:
            usage_row = build_usage_row(call, slot, "profile_cache_hit", FREE, 0, OK, url)
            await unit.execute(insert(usage), usage_row)
        set_headers(call, slot, FREE, 0, is_cached=True)
        return _build_answer(call, slot, row.profile, 0, 0, is_cached=True)

    async def store(unit: Unit, profile: Any) -> None:
        await _store(call, unit, slot, url, "not_found" if profile is None else "ok", profile)

    try:
        purchase = await pay_for(
            call,
            slot,
            "profile",
            slot.profile_price,
            lambda: slot.provider.read_profile(url, fresh=force),
            lambda profile: FREE if profile is None else slot.profile_price,
            network_url=url,
            store=store,
            recorded_as=lambda profile: NOT_FOUND if profile is None else OK,
        )
    except ProviderError:
        await _store_failure(call, slot, url)
        raise
    set_headers(call, slot, purchase.price, purchase.charged, is_cached=False)
    return _build_answer(call, slot, purchase.answer, purchase.price.credits, purchase.charged, is_cached=False)


async def _find_cached(call: Call, slot: Slot, url: str) -> Any:
    columns = profiles.c
    query = select(columns.profile).where(
        columns.app_id == call.require_app().id,
        columns.key == cache_key(url, is_simulated=slot.provider.is_simulated),
        columns.status != "failed",
        columns.expires_at > call.now,
    )
    async with call.reading() as execute:
        return (await execute(query)).first()


async def _store(call: Call, unit: Unit, slot: Slot, url: str, status: Status, profile: Any) -> None:
    row = {
        "app_id": call.require_app().id,
        "key": cache_key(url, is_simulated=slot.provider.is_simulated),
        "network_url": url,
        "status": status,
        "profile": profile,
        "expires_at": call.now + KEPT[status],
    }
    upsert = build_upsert(unit.database.dialect, profiles).values(row)
    if status == "failed":
        # A profile that was read before is still good.
        await unit.execute(upsert.on_conflict_do_nothing())
        return
    changed_values = {name: row[name] for name in ("status", "profile", "expires_at")}
    await unit.execute(upsert.on_conflict_do_update(index_elements=["app_id", "key"], set_=changed_values))


async def _store_failure(call: Call, slot: Slot, url: str) -> None:
    async with call.stores.database.writing_unit(lock=call.require_app().id) as unit:
        if not await FREEZES.is_frozen(unit.execute, call.require_app().id):
            await _store(call, unit, slot, url, "failed", None)


def _build_answer(call: Call, slot: Slot, profile: Any, consumed: int, charged: int, *, is_cached: bool) -> Any:
    answer = {
        "data": profile,
        "status": "not_found" if profile is None else "ok",
        "usage": {"creditsConsumed": consumed, "usdCharged": usd(charged), "cached": is_cached},
    }
    return mark_simulated(call, answer) if slot.provider.is_simulated else answer
