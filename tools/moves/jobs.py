"""Jobs of moves."""

from sqlalchemy import select, update

from baobab.tools.core import Job, RetryLater
from baobab.tools.core.app_data import erase_app
from baobab.tools.moves.drains import advance_drain
from baobab.tools.moves.mover import Mover
from baobab.tools.moves.tables import TEARING_DOWN, moves_table
from baobab.tools.moves.toolset import moves

_ELSEWHERE_SECONDS = 300.0


# Two at once, so that moves of large apps leave room for other jobs.
@moves.job(attempts=1000, at_once=2, cancel="moves_abort")
async def moves_advance(job: Job, move_id: str) -> None:
    """Make the remaining steps of a move."""
    async with job.database.reading() as connection:
        row = (await connection.execute(select(moves_table).where(moves_table.c.id == move_id))).one()
    await Mover(job, row).advance()


@moves.job(attempts=1000)
async def moves_drain(job: Job, name: str, drain_id: str) -> None:
    """Move the apps of a cell away, until none is left."""
    await advance_drain(job, name, drain_id)


@moves.job(attempts=1000)
async def moves_tear_down(job: Job, app_id: str, region: str) -> None:
    """Remove the copy of an app that a move has left behind."""
    stores = job.services.regions.get(region)
    if stores is None:
        raise RetryLater(_ELSEWHERE_SECONDS, f"the region {region} is not served here")
    await erase_app(job.registry.toolsets, stores, app_id)
    of_replica = (moves_table.c.app_id == app_id, moves_table.c.source_region == region)
    is_going = moves_table.c.source_replica_state == TEARING_DOWN
    async with job.writing(last=True, lock=app_id) as unit:
        await unit.execute(update(moves_table).where(*of_replica, is_going).values(source_replica_state="torn_down"))
