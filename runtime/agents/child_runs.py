"""Child runs: runs of other agents as steps of a run, with the rights of the caller who started that run."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import select

from baobab.runtime.agents.charges import RAISE_BUDGET, find_spent_budget
from baobab.runtime.agents.event_log import EventLog
from baobab.runtime.agents.failures import ChildRunPending, RunFailed
from baobab.runtime.agents.job_kinds import ADVANCE
from baobab.runtime.agents.run_rows import build_run_row, copy_caller, insert_run
from baobab.runtime.agents.run_session import RunResult
from baobab.runtime.agents.spec.spec import AgentNode
from baobab.runtime.agents.tables import ENDED, agents, runs
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements
from baobab.tools.core.auth.deciders import Approvers
from baobab.tools.core.limits.money import usd
from baobab.tools.core.services import Services

DEEPEST = 5
"""The most ancestors that a run may have."""


def derive_child_id(run_id: str, call_id: str) -> str:
    """Derives the id of a child run from its parent and call: the same at each attempt."""
    return str(uuid5(UUID(run_id), call_id))


class ChildRuns:
    """The child runs of one run. Each starts in a transaction of its parent, under an id that does not change."""

    def __init__(self, services: Services, database: Database, event_log: EventLog, run: Any) -> None:
        self._services = services
        self._database = database
        self._event_log = event_log
        self._run = run

    async def get_result(
        self, node: AgentNode, input_values: Mapping[str, Any], call_id: str, *, tainted: bool
    ) -> RunResult:
        """Returns the output of the child run of a node, and starts that run if needed.

        Raises ChildRunPending while it has not ended, and RunFailed where it did not complete.
        """
        child_id = derive_child_id(self._run.id, call_id)
        is_child = (runs.c.app_id == self._run.app_id, runs.c.id == child_id)
        async with self._database.reading() as connection:
            child = (await connection.execute(select(runs).where(*is_child))).first()
        if child is None:
            await self._start_run(child_id, node, input_values, tainted=tainted)
        if child is None or child.status not in ENDED:
            raise ChildRunPending(child_id)
        # The call was begun by another attempt than the one that gets the result.
        took = round((child.finished_at - child.created_at).total_seconds() * 1000)
        if child.status == "completed":
            return RunResult(child.output, child.tainted, child.incomplete, took)
        error = child.error or {"type": child.status, "message": f"the run was {child.status}"}
        message, is_quoting = f"{node.agent}: {error['message']}", "quotes" in error
        raise RunFailed(error["type"], message, quotes=is_quoting, cause=error, milliseconds=took)

    async def _start_run(
        self, child_id: str, node: AgentNode, input_values: Mapping[str, Any], *, tainted: bool
    ) -> None:
        run, now = self._run, self._services.clock.now()
        agent = await self._load_agent(node.agent)
        row = build_run_row(agent, child_id, input_values, now) | copy_caller(run)
        row |= {
            # A check that the parent run makes is made in its child runs too.
            "taint_checks": agent.taint_checks or run.taint_checks,
            "approvers": agent.approvers
            or (Approvers.parse(node.approvers).as_column if node.approvers else run.approvers),
            "tainted": tainted,
            "thread_id": run.thread_id,
            "payload_hash": "",
            "parent_run_id": run.id,
            "depth": run.depth + 1,
        }

        def insert_child(statements: Statements) -> None:
            insert_run(statements, row)
            self._services.jobs.enqueue_in(statements, ADVANCE, {"run_id": child_id}, f"run:{child_id}")

        await self._event_log.write_transaction(insert_child)
        self._services.jobs.wake()

    async def _load_agent(self, name: str) -> Any:
        """Loads the agent of a node.

        Its visibility and the limits of its starts do not apply: the parent's graph names it as a part, and its tools
        check the caller's rights.
        """
        run = self._run
        if run.depth >= DEEPEST:
            raise RunFailed("too_deep", f"Agents can run other agents at most {DEEPEST} levels deep.")
        conditions = (agents.c.app_id == run.app_id, agents.c.name == name, agents.c.deleted_at.is_(None))
        async with self._database.reading() as connection:
            agent = (await connection.execute(select(agents).where(*conditions))).first()
            if agent is None:
                raise RunFailed("agent_not_found", f"There is no agent {name} any more.")
        if agent.status != "active":
            raise RunFailed("agent_disabled", f"The agent {name} is disabled.")
        spent_nanos = await find_spent_budget(self._services.credits, run.organisation_id, agent)
        if spent_nanos is not None:
            details = {"agent": name, "limit_usd": usd(agent.daily_budget), "spent_usd": usd(spent_nanos)}
            message = f"The agent {name} has used up its daily budget."
            raise RunFailed("daily_budget_usd", message, cause={"remediation": RAISE_BUDGET, "details": details})
        return agent
