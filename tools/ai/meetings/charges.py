"""The money of meeting bots: what a second costs, what is reserved while a bot is under way, and the charge at its end.

Each dimension of a bot has reservations of its own, and one of them is settled with the whole charge. The ledger
settles a reservation once, so that the charge is the same however often anybody asks for it.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Literal

from baobab.tools.ai.metered_call import Payer
from baobab.tools.core import Call, Services
from baobab.tools.core.limits.credits import Credits, Reservation, Spender, UnknownReservation, Usage

Dimension = Literal["recording", "transcription"]
Leases = dict[str, list[dict[str, Any]]]

PRICES: Mapping[Dimension, int] = {"recording": 500_000_000, "transcription": 150_000_000}
"""Nano-dollars for an hour, without the installation's markup."""
LEASED_SECONDS = 600
"""The part of a call that each reservation covers."""
_AHEAD_SECONDS = 300
_FIRST_TTL, _TTL = 900.0, 26 * 3600.0
"""A reservation is short until the bot's job has it: whoever stops before that must not keep the money."""


def compute_price(dimension: Dimension, seconds: int, markup: int) -> int:
    """Returns the price of some seconds in nano-dollars, rounded to the nearest. markup: percent."""
    return (PRICES[dimension] * seconds * (100 + markup) + 180_000) // 360_000


def list_dimensions(*, recording: Any, transcript: bool) -> list[Dimension]:
    """Returns what is charged for a bot."""
    dimensions: list[Dimension] = []
    if recording:
        dimensions.append("recording")
    if transcript:
        dimensions.append("transcription")
    return dimensions


async def reserve_start(call: Call, payer: Payer, dimensions: list[Dimension]) -> Leases:
    """Reserves the first minutes of the bot that a call starts.

    Raises CreditsExhausted or BudgetExhausted, and then nothing is reserved.
    """
    services, spender = call.services, call.context.spender
    leases: Leases = {}
    try:
        for dimension in dimensions:
            leases[dimension] = [await _reserve(call.credits, services, payer, dimension, _FIRST_TTL, spender)]
    except BaseException:
        await release(services, payer.organisation_id, leases)
        raise
    return leases


async def keep(services: Services, organisation_id: str, leases: Leases) -> None:
    """Makes reservations last for as long as a call may."""
    for reservation in _reservations(organisation_id, leases):
        await services.credits.extend(reservation, _TTL)


async def grow(
    services: Services, payer: Payer, leases: Leases, seconds: int, spender: Spender | None
) -> Leases | None:
    """Reserves more where a call that has lasted for some seconds comes near to what is reserved; None if not needed.

    Raises CreditsExhausted or BudgetExhausted.
    """
    grown_leases: Leases = {dimension: list(parts) for dimension, parts in leases.items()}
    for dimension, parts in grown_leases.items():
        while seconds + _AHEAD_SECONDS > LEASED_SECONDS * len(parts):
            parts.append(await _reserve(services.credits, services, payer, dimension, _TTL, spender))
    if grown_leases == leases:
        return None
    await keep(services, payer.organisation_id, leases)
    return grown_leases


async def settle(services: Services, organisation_id: str, dimension: Dimension, leases: Leases, cost: int) -> None:
    """Charges a dimension of a bot, once however often it is called, and gives the rest back."""
    first, *others = _reservations(organisation_id, {dimension: leases[dimension]})
    # An unknown one was settled days ago by a process that stopped before it wrote that down.
    with contextlib.suppress(UnknownReservation):
        await services.credits.settle(first, cost, Usage(f"meetings/{dimension}"))
    for reservation in others:
        await services.credits.release(reservation)


async def release(services: Services, organisation_id: str, leases: Leases) -> None:
    """Gives everything back that has not been settled."""
    for reservation in _reservations(organisation_id, leases):
        await services.credits.release(reservation)


def build_spender(spender: Spender | None) -> dict[str, Any] | None:
    """Returns what a row keeps of the run that spends."""
    return None if spender is None else {"run_id": spender.run_id, "agents": [list(each) for each in spender.agents]}


def read_spender(content: Any) -> Spender | None:
    """Returns the run that a row has kept."""
    if content is None:
        return None
    return Spender(content["run_id"], tuple((agent_id, budget) for agent_id, budget in content["agents"]))


async def _reserve(
    credits_: Credits, services: Services, payer: Payer, dimension: str, ttl: float, spender: Spender | None
) -> dict[str, Any]:
    amount = compute_price(dimension, LEASED_SECONDS, services.options.ai_markup)  # type: ignore[arg-type]
    reservation = await credits_.reserve(
        payer.organisation_id,
        amount,
        app_id=payer.app_id,
        key_id=payer.key_id,
        spender=spender,
        purpose=f"meetings.{dimension}",
        ttl_seconds=ttl,
    )
    return {"id": reservation.id, "amount": reservation.amount}


def _reservations(organisation_id: str, leases: Leases) -> list[Reservation]:
    return [Reservation(part["id"], organisation_id, part["amount"]) for parts in leases.values() for part in parts]
