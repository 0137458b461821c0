"""`baobab replay`: replays an ended run from its record, as a test of its graph."""

from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.replay import ResultNotRecorded, replay_run
from baobab.runtime.agents.tables import ENDED, agents, runs
from baobab.storage.sql.database import Database
from baobab.tools.core.errors import Conflict, NotFound
from baobab.tools.core.services import Services


class NoSuchRun(NotFound):
    code = "run_not_found"
    summary = "There is no such run."
    remediation = "Use the id of a run: op:agents_runs_list lists them."


class NotReplayable(Conflict):
    code = "run_not_replayable"
    summary = "The run cannot be replayed."
    remediation = "Replay a run that has ended and whose results are all still stored."


async def replay(services: Services, run_id: str, app_id: str | None, *, present: bool) -> tuple[list[str], bool]:
    """Replays a run; returns its events as lines for people, and whether they are the same as before.

    present: use the graph that the agent has now, instead of the one that the run began with. Raises NoSuchRun,
    NotReplayable.
    """
    database, run = await _load_run(services, run_id, app_id)
    if run.status not in ENDED:
        raise NotReplayable(f"The run is {run.status}.")
    graph = await _load_graph(database, run) if present else None
    try:
        result = await replay_run(database, run, graph)
    except ResultNotRecorded as exc:
        raise NotReplayable(f"A result was too large to be stored: {exc}.") from exc
    verdict = "The replay is the same." if result.same else "The replay differs."
    return [f"run {run.id} of {run.agent}, {run.status}", *result.lines, verdict], result.same


async def _load_run(services: Services, run_id: str, app_id: str | None) -> tuple[Database, Any]:
    query = select(runs).where(runs.c.id == run_id)
    if app_id is not None:
        query = query.where(runs.c.app_id == app_id)
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        async with database.reading() as connection:
            row = (await connection.execute(query)).first()
        if row is not None:
            return database, row
    raise NoSuchRun


async def _load_graph(database: Database, run: Any) -> Any:
    same_agent = (agents.c.app_id == run.app_id, agents.c.name == run.agent, agents.c.deleted_at.is_(None))
    async with database.reading() as connection:
        graph = (await connection.execute(select(agents.c.graph_spec).where(*same_agent))).scalar()
    if graph is None:
        raise NotReplayable(f"The agent {run.agent} does not exist any more.")
    return graph
