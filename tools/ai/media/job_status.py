"""Polling: how far a generation job is. Who first hears that it has ended settles it, once among all who hear."""

from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from baobab.tools.ai.media.errors import JobNotFound
from baobab.tools.ai.media.schemas import GenerationJob
from baobab.tools.ai.media.submission import Kind, job_url
from baobab.tools.ai.media.submitters import require_visible
from baobab.tools.ai.media.tables import FREEZES, generation_jobs
from baobab.tools.core.call import Call
from baobab.tools.core.credits import Reservation, UnknownReservation, Usage
from baobab.tools.core.errors import AppMigrating
from baobab.tools.core.money import usd

_POLLED = timedelta(seconds=30)
"""Polls within this time are one: not each of them is worth a transaction."""


async def poll(call: Call, app_id: str, kind: Kind, job_id: str) -> GenerationJob:
    """JobNotFound for one of another app, of the other kind, or of another user."""
    row = await get_job_row(call, app_id, kind, job_id)
    require_visible(call.caller, row)
    row = await acknowledge_job(call, row)
    here = job_url(call, kind, row.app_id, row.id)
    return {
        "job_id": row.id,
        "status": row.status,
        "model": row.model,
        "polling_url": here,
        "content_urls": [f"{here}/content?index={index}" for index in range(len(row.files or ()))],
        "error": row.error,
        "created_at": row.created_at,
        "charged_credits_usd": None if row.settled_at is None else usd(row.cost or 0),
        "settled_at": row.settled_at,
    }


async def get_job_row(call: Call, app_id: str, kind: Kind, job_id: str) -> Any:
    """The row of a job of the called app; JobNotFound."""
    mine = (
        generation_jobs.c.id == job_id,
        generation_jobs.c.app_id == app_id,
        generation_jobs.c.kind == kind,
    )
    async with call.reading() as execute:
        row = (await execute(select(generation_jobs).where(*mine))).first()
    if row is None:
        raise JobNotFound
    return row


async def acknowledge_job(call: Call, row: Any) -> Any:
    """The row, when it is written down that somebody has heard of its state; settled, where it has ended.

    While the app is being moved nothing is written, and so nothing is settled: AppMigrating for whoever would be the
    first to hear of the end.
    """
    values: dict[str, Any] = {}
    if row.settled_at is None and row.ended_at is not None:
        async with call.reading() as execute:
            await FREEZES.require_thawed(execute, row.app_id)
        await _settle(call, row)
        values = {"settled_at": call.now, "polled_at": call.now}
    elif row.ended_at is None and call.now - row.polled_at >= _POLLED:
        values = {"polled_at": call.now}
    if not values:
        return row
    unsettled = (generation_jobs.c.id == row.id, generation_jobs.c.settled_at.is_(None))
    try:
        async with call.stores.database.writing() as connection:
            await FREEZES.require_thawed(connection.execute, row.app_id)
            await connection.execute(update(generation_jobs).where(*unsettled).values(**values))
    except AppMigrating:
        if row.ended_at is not None:
            # Settled once is settled: the next who hears writes it down.
            raise
        return row
    # Of several who heard at once the first has written when it was.
    return await get_job_row(call, row.app_id, row.kind, row.id)


async def _settle(call: Call, row: Any) -> None:
    """Charge what it cost, or nothing where it came to nothing. May be done twice: the reservation is settled once."""
    reservation = Reservation(row.reservation_id, row.organisation_id, row.reserved)
    if row.status != "completed":
        await call.services.credits.release(reservation)
        return
    try:
        await call.services.credits.settle(reservation, row.cost, Usage(row.model))
    except UnknownReservation:
        # It was settled days ago by somebody who did not live to write it down here.
        return
