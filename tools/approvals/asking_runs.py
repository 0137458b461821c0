"""The runs that ask: what whoever decides sees of them beside the call that waits."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import Row, select

from baobab.runtime.agents.langgraph_import import load_graph_library
from baobab.runtime.agents.spec.spec import GraphSpec, LlmNode, Node
from baobab.runtime.agents.spec.wiring import is_output, written_keys
from baobab.runtime.agents.tables import runs
from baobab.storage.sql.database import Execute
from baobab.tools.core import AppNotFound, Call, EndUser
from baobab.tools.core.auth.deciders import PendingDecision

_COLUMNS = (runs.c.id, runs.c.app_id, runs.c.input, runs.c.graph_spec)
_LONGEST_ANSWER = 10_000
"""The most characters of a model's answer that are shown."""

RunsById = Mapping[str, Row[Any]]


async def load_runs(call: Call, approval_rows: Sequence[Any]) -> RunsById:
    """Loads the runs that ask in these rows of `approvals`, by their ids, but for those that were deleted."""
    runs_by_id: dict[str, Row[Any]] = {}
    run_ids_by_app: dict[str, list[str]] = {}
    for row in approval_rows:
        if row.run_id is not None and row.app_id is not None:
            run_ids_by_app.setdefault(row.app_id, []).append(row.run_id)
    for app_id, run_ids in run_ids_by_app.items():
        query = select(*_COLUMNS).where(runs.c.app_id == app_id, runs.c.id.in_(run_ids))
        with suppress(AppNotFound):
            async with _reading_app(call, app_id) as execute:
                runs_by_id |= {run.id: run for run in (await execute(query)).all()}
    return runs_by_id


def render_run(row: Any, run: Row[Any] | None) -> dict[str, Any] | None:
    """Renders the run that asks in a row of `approvals`. run: None if it was deleted."""
    if row.run_id is None:
        return None
    return {"id": row.run_id, "agent": row.agent, "input": None if run is None else run.input}


async def read_answers(call: Call, row: Any, run: Row[Any]) -> dict[str, Any]:
    """Reads what a run's models have answered so far, by the key of the state, for somebody who may decide.

    People and keys that run the app, and users with a role that the graph names as approvers, see all of it; other
    users what becomes part of the run's output. A text that is too long is cut, and says so.
    """
    read_state = (await load_graph_library()).read_state
    async with _reading_app(call, run.app_id) as execute:
        state = await read_state(execute, run)
    spec = GraphSpec.model_validate(run.graph_spec)
    nodes: dict[str, list[Node]] = {}
    for node in spec.nodes.values():
        for key in written_keys(node):
            nodes.setdefault(key, []).append(node)
    caller = call.caller
    is_named = not isinstance(caller, EndUser) or PendingDecision.of_approval(row).approvers.of == f"role:{caller.role}"
    return {
        key: _cut_answer(state[key])
        for key, writing in nodes.items()
        if key in state and all(isinstance(node, LlmNode) and (is_named or is_output(spec, node)) for node in writing)
    }


def _cut_answer(answer: Any) -> Any:
    if not isinstance(answer, str) or len(answer) <= _LONGEST_ANSWER:
        return answer
    return f"{answer[:_LONGEST_ANSWER]}… ({len(answer) - _LONGEST_ANSWER} more characters)"


@asynccontextmanager
async def _reading_app(call: Call, app_id: str) -> AsyncIterator[Execute]:
    """Reads from the database of an app, in the call's own transaction where that is the same database."""
    database = call.services.stores_of((await call.services.directory.app(app_id)).region).database
    if call.unit.database is database:
        yield call.execute
    else:
        async with database.reading() as connection:
            yield connection.execute
