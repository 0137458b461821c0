"""Jobs of the substrate."""

from datetime import timedelta

from sqlalchemy import delete, select

from baobab.tools.core.job import Job
from baobab.tools.substrate import tables
from baobab.tools.substrate.snapshots import take_snapshot
from baobab.tools.substrate.toolset import substrate

_AT_ONCE = 200
_KEPT = timedelta(days=2)
"""How long the stream may look back."""


@substrate.job(every=600)
async def substrate_take_snapshots(job: Job) -> None:
    """Take the snapshot of the day of each organisation that has none yet."""
    services = job.services
    now = services.clock.now()
    day, after = now.date(), ""
    settings, kept = tables.settings.c, tables.snapshots.c
    taken = select(kept.organisation_id).where(kept.snapshot_date == day)
    while True:
        query = select(settings.organisation_id).where(
            settings.organisation_id > after, settings.organisation_id.not_in(taken)
        )
        async with services.database.reading() as connection:
            rows = await connection.execute(query.order_by(settings.organisation_id).limit(_AT_ONCE))
            organisations = list(rows.scalars())
        if not organisations:
            return
        for organisation_id in organisations:
            async with job.writing(lock=organisation_id) as unit:
                await take_snapshot(unit.execute, services.database.dialect, organisation_id, day, now)
        after = organisations[-1]


@substrate.job(every=3600)
async def substrate_trim_changes(job: Job) -> None:
    """Forget changes that only the stream needed: nothing can be undone with them."""
    changes = tables.changes.c
    old = job.services.clock.now() - _KEPT
    async with job.writing(bulk=True) as unit:
        await unit.execute(delete(tables.changes).where(changes.action_id.is_(None), changes.created_at < old))
