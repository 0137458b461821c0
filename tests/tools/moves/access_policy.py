"""The callers that may call the tools of moves, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from sqlalchemy import insert

from baobab.tools.moves.tables import moves_table
from tests.tools.access import ACCOUNTS, ADMINS, RUNNERS, Caller, World

POLICY = {
    "moves_start": ADMINS,
    "moves_active": RUNNERS,
    "moves_get": RUNNERS,
    "moves_abort": ADMINS,
    "moves_reverse": ADMINS,
    "source_replicas_list": ACCOUNTS,
    "source_replicas_delete": "401 403 403 403 403 403 403 403 403 ok  ok  ok  404 404",
}


async def for_moves_get(world: World, caller: Caller) -> dict[str, Any]:
    now, move = world.baobab.application.services.clock.now(), world.baobab.application.services.ids.uuid()
    row = {"id": move, "app_id": world.app, "organisation_id": world.org, "source_region": "there"}
    state = {"current_step": "completed", "source_replica_state": "active", "completed_at": now, "retry_count": 0}
    times = {"created_at": now, "step_started_at": now, "progress": {}, "dest_region": "local"}
    async with world.baobab.application.services.database.writing() as connection:
        await connection.execute(insert(moves_table), row | state | times)
    return {"app_id": world.app, "migration_id": move}


async def for_moves_abort(world: World, caller: Caller) -> dict[str, Any]:
    return await for_moves_get(world, caller)


async def for_moves_reverse(world: World, caller: Caller) -> dict[str, Any]:
    return await for_moves_get(world, caller)


async def for_source_replicas_delete(world: World, caller: Caller) -> dict[str, Any]:
    return {"migration_id": (await for_moves_get(world, caller))["migration_id"]}
