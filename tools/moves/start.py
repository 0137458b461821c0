"""Starts a move: where an app may go, and the row and the job that take it there."""

from typing import Protocol

from sqlalchemy import insert, select

from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import Services
from baobab.tools.core.cells import Cells, RegionFull
from baobab.tools.core.stores import Cell
from baobab.tools.moves.errors import Ineligible
from baobab.tools.moves.tables import TEARING_DOWN, moves_table


class PlacedApp(Protocol):
    """The part of an app's row that a move needs."""

    @property
    def id(self) -> str: ...

    @property
    def organisation_id(self) -> str: ...

    @property
    def region(self) -> str: ...


async def choose_destination(services: Services, execute: Execute, app: PlacedApp, candidates: list[Cell]) -> str:
    """Returns the least loaded of some cells that an app can move to now. Raises Ineligible."""
    underway = (moves_table.c.app_id == app.id, moves_table.c.completed_at.is_(None))
    if (await execute(select(moves_table.c.id).where(*underway))).first():
        raise Ineligible("The app is being moved already.")
    if any(cell.name == app.region for cell in candidates):
        raise Ineligible(f"The app is in the region `{app.region}` already.")
    try:
        return await choose_cell(services, execute, app.id, candidates)
    except RegionFull as exc:
        raise Ineligible(exc.message) from exc


def find_destinations(services: Services, app: PlacedApp, dest_region: str) -> list[Cell]:
    """Returns the cells that a destination stands for. Raises Ineligible if there is none."""
    cells, current = services.options.cells, services.options.cells.get(app.region)
    if current is not None and current.geography == dest_region:
        # Within its geography, an app moves to the one cell of a name.
        return [cells.get(dest_region, current)]
    return services.of(Cells).find(dest_region) or [find_cell(services, dest_region)]


def find_cell(services: Services, name: str) -> Cell:
    """Returns the cell of a name. Raises Ineligible if there is none."""
    cell = services.options.cells.get(name)
    if cell is None:
        raise Ineligible(f"There is no region `{name}`.")
    return cell


async def choose_cell(services: Services, execute: Execute, app_id: str, candidates: list[Cell]) -> str:
    """Returns the least loaded of some cells that an app can move to. Raises Ineligible and RegionFull."""
    conditions = (moves_table.c.app_id == app_id, moves_table.c.source_replica_state == TEARING_DOWN)
    tearing_down = set((await execute(select(moves_table.c.source_region).where(*conditions))).scalars())
    # The removal would delete what the move brings there.
    free = [cell for cell in candidates if cell.name not in tearing_down]
    if not free:
        name = candidates[0].name
        raise Ineligible(f"The copy that was left in the region `{name}` is still being deleted.")
    return await services.of(Cells).choose(execute, free)


async def start_move(services: Services, unit: Unit, app: PlacedApp, dest_region: str) -> str:
    """Adds a move to one of the regions that are served, and returns its id. The unit holds the lock of the app."""
    now, move_id = services.clock.now(), services.ids.uuid()
    row = {
        "id": move_id,
        "app_id": app.id,
        "organisation_id": app.organisation_id,
        "source_region": app.region,
        "dest_region": dest_region,
        "current_step": "requested",
        "source_replica_state": "pending",
        "retry_count": 0,
        "progress": {},
        "created_at": now,
        "step_started_at": now,
    }
    await unit.execute(insert(moves_table), row)
    jobs, tenant = services.jobs, app.organisation_id
    await jobs.enqueue(unit, "moves_advance", {"move_id": move_id}, job_id=f"move:{move_id}", tenant=tenant)
    data = {"migration_id": move_id, "source_region": app.region, "dest_region": dest_region}
    await jobs.emit(unit, "app.move_started", app_id=app.id, data=data, tenant=tenant)
    return move_id
