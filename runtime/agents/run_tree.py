"""Parent and child runs: which events and usage parents receive, and how runs end together.

Parents are updated in the transaction of the child. Rows are locked from child to parent, never the other way: the end
of a run reaches its children through a job.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.job_kinds import ADVANCE, ORPHANS, RUN_ENDED, WEBHOOK
from baobab.runtime.agents.run_watcher import RUN_CANCELS, RUN_EVENTS, RunWatcher
from baobab.runtime.agents.tables import ENDED, FROZEN
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements
from baobab.tools.core.jobs import JOBS, Jobs
from baobab.tools.core.services import Services

_ADD_USAGE = (
    "UPDATE agent_runs SET cost = cost + ?, prompt_tokens = prompt_tokens + ?,"
    " completion_tokens = completion_tokens + ?, tainted = (tainted OR ?)"
    " WHERE app_id = ? AND id = ? RETURNING status, parent_run_id"
)
_RESERVE_SEQ = (
    "UPDATE agent_runs SET last_seq = last_seq + ? WHERE app_id = ? AND id = ? RETURNING last_seq, parent_run_id"
)
INSERT_EVENT = (
    "INSERT INTO agent_events (app_id, run_id, seq, type, payload, subject, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_CANCEL_RUN = (
    "UPDATE agent_runs SET status = 'cancelled', finished_at = ?, last_seq = last_seq + 1, paused_until = NULL,"
    " job_id = NULL"
    " WHERE app_id = ? AND id = ? AND COALESCE(job_id, '') <> ?"
    " AND (status IN ('queued', 'paused') OR (status = 'running' AND job_id IS NULL))"
    " RETURNING last_seq, webhook_url, cost, prompt_tokens, completion_tokens, tainted, parent_run_id"
)
_FAIL_RUN = (
    "UPDATE agent_runs SET status = 'failed', error = ?, finished_at = ?, last_seq = last_seq + 1, paused_until = NULL,"
    " job_id = NULL"
    " WHERE app_id = ? AND id = ? AND COALESCE(job_id, '') = ? AND finished_at IS NULL"
    " RETURNING last_seq, webhook_url, cost, prompt_tokens, completion_tokens, tainted, parent_run_id"
)
_REQUEST_CANCEL = (
    "UPDATE agent_runs SET status = 'cancelling' WHERE app_id = ? AND id = ? AND COALESCE(job_id, '') <> ?"
    " AND status IN ('running', 'cancelling') RETURNING id"
)


def has_agent_nodes(graph: Mapping[str, Any]) -> bool:
    """Returns whether runs of a graph may have child runs."""
    return any(node["type"] == "agent" for node in graph["nodes"].values())


def close_run(statements: Statements, jobs: Jobs, run: Any, usage_columns: Sequence[Any]) -> bool:
    """Finishes what depends on a run that has ended: adds its usage to its parents, continues its parent, and enqueues
    the cancellation of its children. Returns whether jobs were enqueued.

    run: its row, as it was read. usage_columns: its cost, prompt_tokens, completion_tokens, tainted and parent_run_id
    now.
    """
    *usage, parent_id = usage_columns
    run_id, has_children = run.id, has_agent_nodes(run.graph_spec)
    ancestor_id = parent_id
    while ancestor_id is not None:
        updated_rows = statements.rows(_ADD_USAGE, *usage, run.app_id, ancestor_id)
        # A parent that has not ended passes its usage on when it ends.
        ancestor_id = updated_rows[0][1] if updated_rows and updated_rows[0][0] in ENDED else None
    if parent_id is not None:
        jobs.enqueue_in(statements, ADVANCE, {"run_id": parent_id}, f"run:{parent_id}:child:{run_id}")
    if has_children:
        jobs.enqueue_in(statements, ORPHANS, {"run_id": run_id}, f"orphans:{run_id}")
    return parent_id is not None or has_children


def tell_triggers(statements: Statements, jobs: Jobs, run: Any, type_: str, **data: Any) -> bool:
    """Emits an event of a run for triggers, unless it is a step of another run. Returns whether one may wait for it."""
    if run.parent_run_id is not None:
        return False
    data = {"run_id": run.id, "agent": run.agent, **data}
    origin = {"run_id": run.id, "outside": run.caller_kind in ("end_user", "anonymous")}
    return jobs.emit_in(statements, type_, app_id=run.app_id, data=data, origin=origin)


def emit_to_parents(
    statements: Statements,
    app_id: str,
    parent_id: str,
    emitted_events: Iterable[tuple[str, Mapping[str, Any], str | None]],
    at: datetime,
) -> list[str]:
    """Adds events of a run to its parents, and returns the parents' ids.

    emitted_events: type, payload and subject of each.
    """
    events, ids = list(emitted_events), []
    ancestor_id: str | None = parent_id
    while ancestor_id is not None and events:
        reserved_rows = statements.rows(_RESERVE_SEQ, len(events), app_id, ancestor_id)
        if not reserved_rows:
            break
        last_seq, next_id = reserved_rows[0]
        first_seq = last_seq - len(events) + 1
        rows = [
            (app_id, ancestor_id, first_seq + index, type_, to_json(payload).decode(), subject, at)
            for index, (type_, payload, subject) in enumerate(events)
        ]
        statements.insert_many(INSERT_EVENT, rows)
        ids.append(ancestor_id)
        ancestor_id = next_id
    return ids


async def fail_lost_run(services: Services, database: Database, run: Any) -> None:
    """Fails a run whose job failed or no longer exists, so that nothing would continue it. run: its row."""
    failure = RunFailed("worker_lost", "No process could continue the run.")
    now = services.clock.now()

    def work(statements: Statements) -> None:
        error = to_json(failure.error).decode()
        ended_rows = statements.rows(_FAIL_RUN, error, now, run.app_id, run.id, run.job_id or "")
        for seq, webhook_url, *usage in ended_rows:
            statements.rows(
                INSERT_EVENT, run.app_id, run.id, seq, "run_failed", to_json(failure.event).decode(), "run_end", now
            )
            close_run(statements, services.jobs, run, usage)
            tell_triggers(statements, services.jobs, run, RUN_ENDED, status="failed")
            if webhook_url is not None:
                services.jobs.enqueue_in(statements, WEBHOOK, {"run_id": run.id}, f"webhook:{run.id}")

    await database.transact(work, announce=[RUN_EVENTS, JOBS])
    await services.approvals.abandon(run.id)
    services.jobs.wake()
    services.of(RunWatcher).notify_listeners(run.id)


async def request_cancel(services: Services, database: Database, run: Any) -> str | None:
    """Cancels a run. run: its row.

    Returns `cancelled` where no worker executes it, `cancelling` where one does, None where it has ended or is frozen.
    """
    if run.job_id == FROZEN:
        return None
    if run.status != "running":
        # Pending calls must not be executed for a run that has ended.
        await services.approvals.abandon(run.id)
    now = services.clock.now()

    def work(statements: Statements) -> str | None:
        if ended_rows := statements.rows(_CANCEL_RUN, now, run.app_id, run.id, FROZEN):
            seq, webhook_url, *usage = ended_rows[0]
            statements.rows(INSERT_EVENT, run.app_id, run.id, seq, "run_cancelled", "{}", "run_end", now)
            close_run(statements, services.jobs, run, usage)
            tell_triggers(statements, services.jobs, run, RUN_ENDED, status="cancelled")
            if webhook_url is not None:
                services.jobs.enqueue_in(statements, WEBHOOK, {"run_id": run.id}, f"webhook:{run.id}")
            return "cancelled"
        return "cancelling" if statements.rows(_REQUEST_CANCEL, run.app_id, run.id, FROZEN) else None

    status = await database.transact(work, announce=[RUN_EVENTS, RUN_CANCELS, JOBS])
    if status == "cancelled":
        # It may have asked for an approval since its row was read.
        await services.approvals.abandon(run.id)
    services.jobs.wake()
    watcher = services.of(RunWatcher)
    watcher.notify_listeners(run.id)
    watcher.request_refresh()
    return status
