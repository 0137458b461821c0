"""Drains: an operator empties a cell. It takes no new apps, and those in it move to others of its geography.

A drain is a row and a job. The job looks at the cell again and again: it starts moves, as many as may be under way at
once, and each of them is a durable job of its own. So a drain goes on wherever it was when a process is killed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, insert, or_, select, update

from baobab.storage.sql.database import INSTALLATION, Execute, Unit
from baobab.tools.core import Job, RetryLater, Services
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.cells import RegionFull, count_apps, draining_cells, load_draining
from baobab.tools.core.stores import Cell
from baobab.tools.moves.errors import CellUnknown, Ineligible, NotDrainable
from baobab.tools.moves.start import choose_cell, start_move
from baobab.tools.moves.tables import moves_table

JOB = "moves_drain"
MOVES_AT_ONCE = 16
"""How many moves out of one cell are under way at most. Only some of them copy at the same time."""
SETTLED = timedelta(seconds=60)
"""Longer than any call takes that has chosen the cell before it was drained."""
_LOOK_SECONDS, _IDLE_SECONDS = 1.0, 10.0
_AFTER_FAILURE = timedelta(minutes=5)

_UNDERWAY = moves_table.c.completed_at.is_(None)


@dataclass(frozen=True, slots=True)
class CellState:
    """How a cell is doing, for its operator."""

    cell: Cell
    apps: int
    answers: bool
    leaving: int
    """Moves out of it that are under way."""
    copies: int
    """The copies that moves have left in the cell."""
    drain: Any
    """The row of `draining_cells`; None if it is not drained."""


async def list_cell_states(services: Services) -> list[CellState]:
    """Returns every cell of the settings, in their order."""
    cells = services.options.cells
    async with services.database.reading() as connection:
        numbers = await count_apps(connection.execute, cells)
        leaving = await _count_by_source(connection.execute, _UNDERWAY)
        copies = await _count_by_source(connection.execute, moves_table.c.source_replica_state == "active")
        drains = {row.name: row for row in await connection.execute(select(draining_cells))}
    return [
        CellState(cell, numbers[name], name in services.regions, leaving[name], copies[name], drains.get(name))
        for name, cell in cells.items()
    ]


async def start_drain(services: Services, name: str, started_by: str) -> None:
    """Lets a cell take no new apps from now on, and asks for the job that empties it. Does nothing if it is being
    drained. Raises CellUnknown, NotDrainable.
    """
    cell = _find_cell(services, name)
    async with services.database.writing_unit(lock=INSTALLATION) as unit:
        draining = await load_draining(unit.execute)
        if name in draining:
            return
        cells = _list_others(services, cell)
        if not cells:
            raise NotDrainable(f"{name} is the only cell of the geography {cell.geography}.")
        if all(other.name in draining for other in cells):
            raise NotDrainable(f"Every other cell of the geography {cell.geography} is being drained.")
        drain_id = services.ids.uuid()
        row = {"name": name, "drain_id": drain_id, "since": services.clock.now(), "started_by": started_by}
        await unit.execute(insert(draining_cells), row)
        await services.jobs.enqueue(unit, JOB, {"name": name, "drain_id": drain_id}, job_id=f"drain:{drain_id}")


async def stop_drain(services: Services, name: str) -> None:
    """Lets a cell take apps again. Moves that are under way are completed. Raises CellUnknown."""
    _find_cell(services, name)
    async with services.database.writing_unit(lock=INSTALLATION) as unit:
        await unit.execute(delete(draining_cells).where(draining_cells.c.name == name))


async def advance_drain(job: Job, name: str, drain_id: str) -> None:
    """Starts moves out of a cell, and returns when it is empty for good, or not to be drained any more. Raises
    RetryLater until then.
    """
    services = job.services
    this_drain = (draining_cells.c.name == name, draining_cells.c.drain_id == drain_id)
    async with services.database.reading() as connection:
        drain = (await connection.execute(select(draining_cells).where(*this_drain))).first()
        app_ids = await _load_waiting(connection.execute, name, services.clock.now())
        is_left = await _is_anything_left(connection.execute, name)
        failure = (
            await _find_failure(connection.execute, name, services.clock.now()) if is_left and not app_ids else None
        )
    if drain is None:
        return
    if name not in services.options.cells:
        raise RetryLater(_IDLE_SECONDS, f"the region {name} is not served here")
    error = await _start_moves(job, services.options.cells[name], app_ids) or failure
    now = services.clock.now()
    emptied_at = None if is_left else drain.emptied_at or now
    if (emptied_at, error) != (drain.emptied_at, drain.last_error):
        async with job.writing() as unit:
            await unit.execute(
                update(draining_cells).where(*this_drain).values(emptied_at=emptied_at, last_error=error)
            )
    if emptied_at is None:
        raise RetryLater(_IDLE_SECONDS if error else _LOOK_SECONDS, "apps are being moved")
    if now - emptied_at < SETTLED:
        raise RetryLater((SETTLED - (now - emptied_at)).total_seconds(), "a call may still have chosen the cell")


async def _start_moves(job: Job, cell: Cell, app_ids: Sequence[str]) -> str | None:
    """Starts to move some apps. Returns why one of them cannot be moved."""
    other_cells = _list_others(job.services, cell)
    if app_ids and not other_cells:
        return NotDrainable(f"{cell.name} is the only cell of the geography {cell.geography}.").message
    error = None
    for app_id in app_ids:
        async with job.writing(lock=app_id) as unit:
            try:
                await _start_move(job.services, unit, cell, app_id, other_cells)
            except Ineligible as exc:
                error = exc.message
            except RegionFull as exc:
                return exc.message
    return error


async def _start_move(services: Services, unit: Unit, cell: Cell, app_id: str, other_cells: list[Cell]) -> None:
    query = select(apps.c.id, apps.c.organisation_id, apps.c.region)
    app = (await unit.execute(query.where(apps.c.id == app_id, apps.c.region == cell.name))).first()
    if (
        app is None
        or (await unit.execute(select(moves_table.c.id).where(moves_table.c.app_id == app_id, _UNDERWAY))).first()
    ):
        # Its owner has deleted or moved it meanwhile.
        return
    destination = await choose_cell(services, unit.execute, app_id, other_cells)
    await start_move(services, unit, app, destination)
    data = {"from": cell.name, "to": destination, "reason": "drain"}
    await services.audit_log.record_operator(unit, "app.move", app.organisation_id, "app", app_id, data, app_id=app_id)


async def _load_waiting(execute: Execute, name: str, now: datetime) -> list[str]:
    """Returns the next apps to move out of a cell, as many as there is room for."""
    leaving = select(func.count()).select_from(moves_table).where(moves_table.c.source_region == name, _UNDERWAY)
    room = MOVES_AT_ONCE - (await execute(leaving)).scalar_one()
    of_app = moves_table.c.app_id == apps.c.id
    waiting = (
        select(apps.c.id)
        .where(apps.c.region == name, ~exists().where(of_app, _UNDERWAY), ~exists().where(of_app, *_given_up(now)))
        .order_by(apps.c.id)
        .limit(max(room, 0))
    )
    return list((await execute(waiting)).scalars())


async def _find_failure(execute: Execute, name: str, now: datetime) -> str | None:
    """Returns why a move out of a cell does not get further, or has not been completed."""
    not_completed = or_(and_(_UNDERWAY, moves_table.c.last_error.is_not(None)), and_(*_given_up(now)))
    latest = (
        select(moves_table)
        .where(moves_table.c.source_region == name, not_completed)
        .order_by(moves_table.c.step_started_at.desc())
        .limit(1)
    )
    row = (await execute(latest)).first()
    if row is None:
        return None
    if row.completed_at is None:
        return f"the move of {row.app_id}: {row.last_error}"
    how = "was called back by its owner" if row.current_step == "aborted" else f"failed: {row.last_error}"
    return f"the move of {row.app_id} {how}; it is tried again after five minutes"


def _given_up(now: datetime) -> tuple[ColumnElement[bool], ...]:
    """Moves that ended a short while ago without getting anywhere. The next attempt waits, so that they leave room."""
    is_recent = moves_table.c.completed_at > now - _AFTER_FAILURE
    return (moves_table.c.current_step.in_(("failed", "aborted")), is_recent)


async def _is_anything_left(execute: Execute, name: str) -> bool:
    """Returns whether there is an app in a cell, or on its way out of it or into it."""
    if (await execute(select(apps.c.id).where(apps.c.region == name).limit(1))).first():
        return True
    touches = (moves_table.c.source_region == name) | (moves_table.c.dest_region == name)
    return (await execute(select(moves_table.c.id).where(_UNDERWAY, touches).limit(1))).first() is not None


async def _count_by_source(execute: Execute, condition: ColumnElement[bool]) -> Counter[str]:
    number = func.count().label("number")
    rows = await execute(
        select(moves_table.c.source_region, number).where(condition).group_by(moves_table.c.source_region)
    )
    return Counter({row.source_region: row.number for row in rows})


def _find_cell(services: Services, name: str) -> Cell:
    cell = services.options.cells.get(name)
    if cell is None:
        raise CellUnknown(f"There is no cell {name}. The cells are {', '.join(services.options.cells)}.")
    return cell


def _list_others(services: Services, cell: Cell) -> list[Cell]:
    """Returns the cells that the apps of a cell may move to."""
    return [
        other
        for other in services.options.cells.values()
        if other.geography == cell.geography and other.name != cell.name
    ]
