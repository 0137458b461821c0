"""Polls generation jobs. The first poll after a job has ended charges it, exactly once."""

from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from baobab.tools.ai.media.errors import JobNotFound
from baobab.tools.ai.media.schemas import GenerationJob
from baobab.tools.ai.media.submission import Kind, job_url
from baobab.tools.ai.media.submitters import require_visible
from baobab.tools.ai.media.tables import FREEZES, generation_jobs, is_job
from baobab.tools.core import AppMigrating, Call
from baobab.tools.core.limits.credits import Reservation, UnknownReservation, Usage
from baobab.tools.core.limits.money import usd

_POLLED = timedelta(seconds=30)
"""Polls within this time are recorded once, because not each is worth a transaction."""


async def poll(call: Call, app_id: str, kind: Kind, job_id: str) -> GenerationJob:
    """Returns the state of a job. Raises JobNotFound for a job of another app, kind or user."""
    row = await get_job_row(call, app_id, kind, job_id)
    require_visible(call.caller, row)
    row = await acknowledge_job(call, row)
    url = job_url(call, kind, row.app_id, row.id)
    return {
        "job_id": row.id,
        "status": row.status,
        "model": row.model,
        "polling_url": url,
        "content_urls": [f"{url}/content?index={index}" for index in range(len(row.files or ()))],
        "error": row.error,
        "created_at": row.created_at,
        "charged_credits_usd": None if row.settled_at is None else usd(row.cost or 0),
        "settled_at": row.settled_at,
    }


async def get_job_row(call: Call, app_id: str, kind: Kind, job_id: str) -> Any:
    """Returns the row of a job of the called app; raises JobNotFound."""
    conditions = (is_job(app_id, job_id), generation_jobs.c.kind == kind)
    async with call.reading() as execute:
        row = (await execute(select(generation_jobs).where(*conditions))).first()
    if row is None:
        raise JobNotFound
    return row


async def acknowledge_job(call: Call, row: Any) -> Any:
    """Records that the job was polled, charges it if it has ended, and returns its row.

    While the app is being moved nothing is written or charged. Then the first poll after the end raises AppMigrating.
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
    is_unsettled = (is_job(row.app_id, row.id), generation_jobs.c.settled_at.is_(None))
    try:
        async with call.stores.database.writing(lock=row.app_id) as connection:
            await FREEZES.require_thawed(connection.execute, row.app_id)
            await connection.execute(update(generation_jobs).where(*is_unsettled).values(**values))
    except AppMigrating:
        if row.ended_at is not None:
            # The charge stands, because a reservation is settled once; the next poll records it.
            raise
        return row
    # If several polls run at once, the first one has recorded the time.
    return await get_job_row(call, row.app_id, row.kind, row.id)


async def _settle(call: Call, row: Any) -> None:
    """Charges the job's cost, or nothing if it failed. Repeating this is safe: a reservation is settled once."""
    reservation = Reservation(row.reservation_id, row.organisation_id, row.reserved)
    if row.status != "completed":
        await call.services.credits.release(reservation)
        return
    try:
        await call.services.credits.settle(reservation, row.cost, Usage(row.model))
    except UnknownReservation:
        # It was settled earlier by a process that stopped before it recorded that here.
        return
