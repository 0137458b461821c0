"""Moving an app to another region: /v1/apps/{app_id}/move, its migrations, and the copies that are left behind."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import exists, select, update

from baobab.tools.core import AnyAccount, AppId, AppOwner, Audit, Call, Guard, Rest, Text, Uuid, require_role
from baobab.tools.core.auth.membership import resolve_organisation_id
from baobab.tools.core.waiting import Waits
from baobab.tools.moves.errors import (
    DestRegionRequired,
    Ineligible,
    MoveNotFound,
    NoReplica,
    TooLateToAbort,
)
from baobab.tools.moves.schemas import Aborting, ActiveMove, Move, MoveReversed, MoveStarted, Replicas, TornDown
from baobab.tools.moves.start import choose_destination, find_cell, find_destinations, start_move
from baobab.tools.moves.tables import BEFORE_FLIP, TEARING_DOWN, moves_table
from baobab.tools.moves.toolset import moves

MoveId = Annotated[Uuid, Field(description="The move, as op:moves_start or op:moves_active names it.")]
Region = Annotated[str, Text(40), Field(description="A region that op:system_regions names.", examples=["eu-west-1"])]


async def _preview_start(call: Call, app_id: AppId, dest_region: Region | None = None) -> str:
    if not dest_region:
        raise DestRegionRequired
    region = await _choose_destination(call, dest_region)
    return f"It would move the app from the region {call.require_app().region} to {region}."


def _is_over(move: Move) -> bool:
    return move["completed_at"] is not None


def _add_end(result: Any, move: Move) -> Any:
    fields = {name: move[name] for name in ("current_step", "last_error", "completed_at")}
    return {**result, **fields, "status": move["current_step"]}


_TO_END = Waits(_is_over, "moves_get", lambda result: {"migration_id": result["migration_id"]}, _add_end)


@moves.tool(
    "POST /v1/apps/{app_id}/move",
    waits=_TO_END,
    access=AppOwner("admin"),
    effect="write",
    raises=(DestRegionRequired, Ineligible),
    audit=Audit("app.move", resource="app"),
    rest=Rest(status=202, examples={"dest_region": "eu-west-1"}),
    guard=Guard(preview=_preview_start),
)
async def moves_start(call: Call, app_id: AppId, dest_region: Region | None = None) -> MoveStarted:
    """Move an app with its data to another region.

    Reads keep working. Writes of the app's data answer 503 with `Retry-After` while it is copied and until every
    server knows the new region. The copy in the old region stays until you delete it
    (op:source_replicas_delete).

    dest_region: required; op:system_regions names them. A geography other than the app's stands for the least loaded
      of its regions.
    """
    if not dest_region:
        raise DestRegionRequired
    return await _start(call, app_id, await _choose_destination(call, dest_region))


@moves.tool(
    "GET /v1/apps/{app_id}/migrations/active",
    access=AppOwner(),
    effect="read",
)
async def moves_active(call: Call, app_id: AppId) -> ActiveMove:
    """Read the active move of an app; null if it is not being moved."""
    underway = (moves_table.c.app_id == app_id, moves_table.c.completed_at.is_(None))
    row = (await call.execute(select(moves_table).where(*underway))).first()
    return {"migration": None if row is None else _move(row)}


@moves.tool(
    "GET /v1/apps/{app_id}/migrations/{migration_id}",
    waits=Waits(_is_over),
    access=AppOwner(),
    effect="read",
    raises=(MoveNotFound,),
)
async def moves_get(call: Call, app_id: AppId, migration_id: MoveId) -> Move:
    """Read the progress of a move.

    `progress` says how many keys, rows, files, users and vectors are moved, once that is known.
    """
    return _move(await _of_app(call, app_id, migration_id))


async def _preview_abort(call: Call, app_id: AppId, migration_id: MoveId) -> str:
    row = await _of_app(call, app_id, migration_id)
    abortable = row.completed_at is None and row.current_step in BEFORE_FLIP and row.ending is None
    if not abortable and (row.ending != "aborted" or row.completed_at is not None):
        raise TooLateToAbort
    return f"It would give up the move to the region {row.dest_region}: the app stays in {row.source_region}."


@moves.tool(
    "POST /v1/apps/{app_id}/migrations/{migration_id}/abort",
    access=AppOwner("admin"),
    effect="write",
    raises=(MoveNotFound, TooLateToAbort),
    audit=Audit("app.move.abort", resource="app"),
    guard=Guard(preview=_preview_abort),
)
async def moves_abort(call: Call, app_id: AppId, migration_id: MoveId) -> Aborting:
    """Abort a move, so that the app stays in its region. Not possible once requests go to the new region."""
    row = await _of_app(call, app_id, migration_id)
    conditions = (moves_table.c.id == row.id, moves_table.c.completed_at.is_(None))
    is_early = (moves_table.c.current_step.in_(BEFORE_FLIP), moves_table.c.ending.is_(None))
    statement = update(moves_table).where(*conditions, *is_early).values(ending="aborted")
    if (await call.execute(statement)).rowcount != 1 and (row.ending != "aborted" or row.completed_at is not None):
        raise TooLateToAbort
    call.audit.resource_id = app_id
    return {"migration_id": row.id, "status": "aborting"}


async def _preview_reverse(call: Call, app_id: AppId, migration_id: MoveId) -> str:
    row = await _get_reversible(call, app_id, migration_id)
    await _choose_old_region(call, row.source_region)
    return f"It would move the app back to the region {row.source_region}, and replace the old copy there."


@moves.tool(
    "POST /v1/apps/{app_id}/migrations/{migration_id}/reverse",
    waits=_TO_END,
    access=AppOwner("admin"),
    effect="write",
    raises=(MoveNotFound, NoReplica, Ineligible),
    audit=Audit("app.move.reverse", resource="app"),
    rest=Rest(status=202, further_names={"migrationId": "migration_id"}),
    guard=Guard(overwrites=True, preview=_preview_reverse),
)
async def moves_reverse(call: Call, app_id: AppId, migration_id: MoveId) -> MoveReversed:
    """Move an app back to the region that it came from, with what was written since. The old copy there is replaced."""
    row = await _get_reversible(call, app_id, migration_id)
    move = await _start(call, app_id, await _choose_old_region(call, row.source_region))
    return {**move, "path": f"/v1/apps/{app_id}/migrations/{move['migration_id']}"}


@moves.tool(
    "GET /v1/source-replicas",
    access=AnyAccount(),
    effect="read",
)
async def source_replicas_list(call: Call, org_id: Uuid | None = None) -> Replicas:
    """List the copies that moves of an organisation's apps have left behind, newest first.

    org_id: another organisation that you belong to; the caller's when left out.
    """
    conditions = (
        moves_table.c.organisation_id == await resolve_organisation_id(call, org_id),
        moves_table.c.source_replica_state == "active",
    )
    rows = await call.execute(
        select(moves_table).where(*conditions).order_by(moves_table.c.created_at.desc()).limit(1000)
    )
    return {
        "source_replicas": [
            {
                "migration_id": row.id,
                "app_id": row.app_id,
                "region": row.source_region,
                "source_region": row.source_region,
                "dest_region": row.dest_region,
                "state": row.source_replica_state,
                "since": row.created_at,
                "completed_at": row.completed_at,
            }
            for row in rows
        ]
    }


async def _preview_teardown(call: Call, migration_id: MoveId) -> str:
    row = await _of_admin(call, migration_id)
    underway = (moves_table.c.app_id == row.app_id, moves_table.c.completed_at.is_(None))
    if row.source_replica_state != "active" or (await call.execute(select(moves_table.c.id).where(*underway))).first():
        raise NoReplica
    return f"It would delete the copy of the app {row.app_id} that is left in the region {row.source_region}."


@moves.tool(
    "DELETE /v1/source-replicas/{migration_id}",
    access=AnyAccount(named_role="admin"),
    effect="destructive",
    raises=(MoveNotFound, NoReplica),
    audit=Audit("app.replica.delete", action="delete", resource="app"),
    guard=Guard(preview=_preview_teardown),
)
async def source_replicas_delete(call: Call, migration_id: MoveId) -> TornDown:
    """Delete the copy that a move has left behind. The move can then not be reversed any more."""
    row = await _of_admin(call, migration_id)
    other_moves = moves_table.alias()
    underway = (other_moves.c.app_id == row.app_id, other_moves.c.completed_at.is_(None))
    active = (moves_table.c.id == row.id, moves_table.c.source_replica_state == "active")
    # A move in progress from or to that region still needs the copy.
    start_removal = (
        update(moves_table).where(*active, ~exists().where(*underway)).values(source_replica_state=TEARING_DOWN)
    )
    if (await call.execute(start_removal)).rowcount != 1:
        raise NoReplica
    arguments = {"app_id": row.app_id, "region": row.source_region}
    await call.enqueue("moves_tear_down", arguments, job_id=f"replica:{row.id}")
    call.audit.resource_id, call.audit.app_id = row.app_id, row.app_id
    return {"status": "torn_down"}


async def _choose_destination(call: Call, dest_region: str) -> str:
    app = call.require_app()
    candidates = find_destinations(call.services, app, dest_region)
    return await choose_destination(call.services, call.execute, app, candidates)


async def _choose_old_region(call: Call, region: str) -> str:
    candidates = [find_cell(call.services, region)]
    return await choose_destination(call.services, call.execute, call.require_app(), candidates)


async def _start(call: Call, app_id: str, region: str) -> MoveStarted:
    app = call.require_app()
    move_id = await start_move(call.services, call.unit, app, region)
    call.audit.resource_id = app_id
    call.audit.data |= {"from": app.region, "to": region}
    return {"migration_id": move_id, "status": "queued"}


async def _of_app(call: Call, app_id: str, move_id: str) -> Any:
    this_move = (moves_table.c.id == move_id, moves_table.c.app_id == app_id)
    row = (await call.execute(select(moves_table).where(*this_move))).first()
    if row is None:
        raise MoveNotFound
    return row


async def _get_reversible(call: Call, app_id: str, move_id: str) -> Any:
    """Returns a move of an app that has ended and left a copy behind."""
    row = await _of_app(call, app_id, move_id)
    if row.source_replica_state != "active" or row.completed_at is None:
        raise NoReplica
    return row


async def _of_admin(call: Call, move_id: str) -> Any:
    """Returns the move to admins of the app's organisation; raises MoveNotFound for strangers."""
    row = (await call.execute(select(moves_table).where(moves_table.c.id == move_id))).first()
    is_foreign = (
        call.account.key_id is not None and row is not None and call.account.organisation_id != row.organisation_id
    )
    if row is None or is_foreign:
        raise MoveNotFound
    role = await call.services.directory.role(row.organisation_id, call.account.account_id)
    if role is None:
        raise MoveNotFound
    require_role(role, "admin")
    return row


def _move(row: Any) -> Move:
    return {
        "migration_id": row.id,
        "app_id": row.app_id,
        "current_step": row.current_step,
        "source_region": row.source_region,
        "dest_region": row.dest_region,
        "source_replica_state": "torn_down" if row.source_replica_state == TEARING_DOWN else row.source_replica_state,
        "last_error": row.last_error,
        "retry_count": row.retry_count,
        "created_at": row.created_at,
        "step_started_at": row.step_started_at,
        "completed_at": row.completed_at,
        "progress": row.progress,
    }
