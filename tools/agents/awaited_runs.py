"""The child runs that a run waits for, and who decides about their calls."""

from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.run_tree import has_agent_nodes
from baobab.runtime.agents.tables import UNENDED, runs
from baobab.tools.agents.schemas.agents import Awaited, Decision
from baobab.tools.core import Call
from baobab.tools.core.auth.deciders import PendingDecision

_MOST_TOLD = 5


async def list_awaited_runs(call: Call, run: Any) -> list[Awaited]:
    """Lists the child runs of a run that have not ended, the nearest first. run: its row."""
    descendants = await list_descendant_runs(call, run)
    decisions_by_run: dict[str, list[Decision]] = {}
    for row in await call.services.approvals.list_pending_of_runs(call.execute, [row.id for row in descendants]):
        approvers = PendingDecision.of_approval(row).approvers.as_json
        decision: Decision = {
            "approval_id": row.id,
            "tool": row.tool,
            "approvers": approvers,
            "expires_at": row.expires_at,
        }
        decisions_by_run.setdefault(row.run_id, []).append(decision)
    return [
        {
            "run_id": row.id,
            "agent": row.agent,
            "status": row.status,
            "parent_run_id": row.parent_run_id,
            "decisions": decisions_by_run.get(row.id, []),
        }
        for row in descendants
    ]


async def tell_what_a_run_waits_for(call: Call, run: Any) -> None:
    """Says for which decisions a paused run waits. run: its row."""
    if run.status == "paused":
        pending = await call.services.approvals.list_pending_of_runs(call.execute, [run.id])
        for row in pending[:_MOST_TOLD]:
            tool = "a question" if row.tool == "interrupt" else row.tool
            call.warn(f"The run waits for a person's decision about {tool}: approvals_get shows {row.id}.")
        if len(pending) > _MOST_TOLD:
            call.warn(f"It waits for {len(pending) - _MOST_TOLD} more decisions, which approvals_list shows.")


async def list_descendant_runs(call: Call, run: Any) -> list[Any]:
    """Returns the rows of the child runs of a run that have not ended, the nearest first."""
    if run.finished_at is not None or not has_agent_nodes(run.graph_spec):
        return []
    descendants: list[Any] = []
    columns = (runs.c.id, runs.c.agent, runs.c.status, runs.c.parent_run_id)
    parent_ids = [run.id]
    while parent_ids:
        query = (
            select(*columns).where(UNENDED, runs.c.parent_run_id.in_(parent_ids)).order_by(runs.c.created_at, runs.c.id)
        )
        async with call.reading() as execute:
            rows = (await execute(query)).all()
        descendants += rows
        parent_ids = [row.id for row in rows]
    return descendants
