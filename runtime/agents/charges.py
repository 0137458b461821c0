"""The costs of a run's models: the budgets that they count against, and a total in the run's row that is complete."""

from typing import Any

from sqlalchemy import bindparam, func, select

from baobab.runtime.agents.event_log import EventLog
from baobab.runtime.agents.tables import AGENT_OF_RUN, ENDED, agents, runs
from baobab.storage.sql.database import Database
from baobab.tools.core.limits.credits import Credits, Spender
from baobab.tools.core.services import Services

_FIND_RUN = (
    select(runs.c.id, runs.c.agent_id, runs.c.parent_run_id, agents.c.daily_budget)
    .outerjoin(agents, AGENT_OF_RUN)
    .where(runs.c.id == bindparam("run"))
)
RAISE_BUDGET = (
    "Raise the agent's `daily_budget_usd` (agents_update), lower `max_tokens` of the node, or wait until midnight UTC."
)
OUT_OF_BUDGET = "The agent's daily budget does not allow another call of a model."


async def find_spender(database: Database, run_id: str) -> Spender | None:
    """Returns who pays for the calls of a run that is stored in this database; None if the run is no longer there."""
    run = (await database.execute(_FIND_RUN, {"run": run_id})).first()
    return None if run is None else await _load_spender(database, run)


async def _load_spender(database: Database, run: Any) -> Spender:
    """Loads the budgets that a run counts against: those of its agent and of the agents of its parent runs.

    run: its row, with the `daily_budget` of its agent.
    """
    # An agent may be its own ancestor, through another one.
    daily_budgets, parent_id = {run.agent_id: run.daily_budget}, run.parent_run_id
    # None of it depends on the moment of another: parents and agents of a run stay the same.
    while parent_id is not None:
        parent = (await database.execute(_FIND_RUN, {"run": parent_id})).first()
        if parent is None:
            break
        daily_budgets[parent.agent_id] = parent.daily_budget
        parent_id = parent.parent_run_id
    return Spender(run.id, tuple(daily_budgets.items()))


class RunCharges:
    """The model costs of one run. Call `load` before its models are called.

    run: its row, with the `daily_budget` of its agent.
    """

    def __init__(self, services: Services, database: Database, event_log: EventLog, run: Any) -> None:
        self._services = services
        self._database = database
        self._event_log = event_log
        self._run = run
        self.spender = Spender(run.id, ((run.agent_id, None),))
        self.may_be_incomplete = False
        """Whether a call that may have been charged has failed."""

    async def load(self) -> None:
        """Loads the budgets that the run counts against."""
        self.spender = await _load_spender(self._database, self._run)

    async def count_missing(self) -> None:
        """Adds charges that the run's row lacks, because a process ended between a model call and its record."""
        children = runs.alias()
        children_cost = select(func.coalesce(func.sum(children.c.cost), 0)).where(
            children.c.parent_run_id == runs.c.id, children.c.status.in_(ENDED)
        )
        own_cost_query = select(runs.c.cost - children_cost.scalar_subquery()).where(
            runs.c.app_id == self._run.app_id, runs.c.id == self._run.id
        )
        # The counts of this attempt are written first, so that they are not counted twice.
        await self._event_log.flush()
        async with self._database.reading() as connection:
            recorded_cost = (await connection.execute(own_cost_query)).scalar_one()
        missing = await self._services.credits.run_cost(self._run.id) - int(recorded_cost)
        if missing > 0:
            self._event_log.add_usage(cost=missing)
        self.may_be_incomplete = False


async def find_spent_budget(credits_: Credits, organisation_id: str, agent: Any) -> int | None:
    """Returns what the runs of an agent have cost today if that is its whole daily budget, otherwise None.

    It avoids starting runs that would fail at once. The budget itself is enforced by each model call, which reserves
    its cost.

    agent: its row. Money is in nano-dollars.
    """
    if agent.daily_budget is None:
        return None
    budget = await credits_.agent_budget(organisation_id, agent.id)
    spent_nanos = 0 if budget is None else budget.spent_nanos
    return None if spent_nanos < agent.daily_budget else spent_nanos
