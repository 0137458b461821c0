"""Jobs of moves."""

from sqlalchemy import select, update

from baobab.tools.core.app_data import erase_app
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import RetryLater
from baobab.tools.moves.mover import Mover
from baobab.tools.moves.tables import TEARING_DOWN, moves_table
from baobab.tools.moves.toolset import moves

_ELSEWHERE_SECONDS = 300.0


# Large apps must not take the place of every other job.
@moves.job(attempts=1000, at_once=2)
async def moves_advance(job: Job, move_id: str) -> None:
    """Make what is left of a move."""
    async with job.database.reading() as connection:
        row = (await connection.execute(select(moves_table).where(moves_table.c.id == move_id))).one()
    await Mover(job, row).advance()


@moves.job(attempts=1000)
async def moves_tear_down(job: Job, app_id: str, region: str) -> None:
    """Remove the copy of an app that a move has left behind."""
    stores = job.services.regions.get(region)
    if stores is None:
        raise RetryLater(_ELSEWHERE_SECONDS, f"the region {region} is not served here")
    await erase_app(job.registry.toolsets, stores, app_id)
    left = (moves_table.c.app_id == app_id, moves_table.c.source_region == region)
    going = moves_table.c.source_replica_state == TEARING_DOWN
    async with job.writing(last=True) as unit:
        await unit.execute(update(moves_table).where(*left, going).values(source_replica_state="torn_down"))
