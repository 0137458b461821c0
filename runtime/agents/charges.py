"""What the models of a run cost: against which budgets they count, and that the run's row says all of it."""

from typing import Any

from sqlalchemy import func, select

from baobab.runtime.agents.event_log import EventLog
from baobab.runtime.agents.tables import ENDED, agents, runs
from baobab.storage.database import Database
from baobab.tools.core.credits import Credits, Spender
from baobab.tools.core.services import Services

OUT_OF_BUDGET = "The agent's budget of the day does not allow another call of a model."


class RunCharges:
    """Those of one run. `load` it before its models are called."""

    def __init__(self, services: Services, database: Database, event_log: EventLog, run: Any) -> None:
        self._services = services
        self._database = database
        self._event_log = event_log
        self._run = run
        self.spender = Spender(run.id, ((run.agent_id, None),))
        self.may_be_incomplete = False
        """Whether a call has failed that may have been charged."""

    async def load(self) -> None:
        """Look up whose budgets the run counts against: its agent's, and those of the agents above it."""
        ids, above = [self._run.agent_id], self._run.parent_run_id
        async with self._database.reading() as connection:
            while above is not None:
                parent = select(runs.c.agent_id, runs.c.parent_run_id).where(runs.c.id == above)
                row = (await connection.execute(parent)).first()
                if row is None:
                    break
                ids.append(row.agent_id)
                above = row.parent_run_id
            bounds = select(agents.c.id, agents.c.daily_budget).where(agents.c.id.in_(ids))
            most = {row.id: row.daily_budget for row in await connection.execute(bounds)}
        # An agent may have run itself, through another.
        self.spender = Spender(self._run.id, tuple((id_, most.get(id_)) for id_ in dict.fromkeys(ids)))

    async def count_missing(self) -> None:
        """Add to the run what was charged for it and is not written down: whoever called the model did not live to."""
        below = runs.alias()
        handed = select(func.coalesce(func.sum(below.c.cost), 0)).where(
            below.c.parent_run_id == runs.c.id, below.c.status.in_(ENDED)
        )
        written = select(runs.c.cost - handed.scalar_subquery()).where(runs.c.id == self._run.id)
        # What this attempt has counted is written first, so that it is not counted twice.
        await self._event_log.flush()
        async with self._database.reading() as connection:
            counted = (await connection.execute(written)).scalar_one()
        missing = await self._services.credits.run_cost(self._run.id) - int(counted)
        if missing > 0:
            self._event_log.add_usage(cost=missing)
        self.may_be_incomplete = False


async def is_budget_spent(credits_: Credits, organisation_id: str, agent: Any) -> bool:
    """Whether the runs of an agent have cost today what they may. agent: its row."""
    if agent.daily_budget is None:
        return False
    budget = await credits_.agent_budget(organisation_id, agent.id)
    return (0 if budget is None else budget.spent_nanos) >= int(agent.daily_budget)
