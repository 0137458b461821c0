"""Rows of agents: how one is found, which columns a call sets, and how many a plan allows."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Text as LongText
from sqlalchemy import bindparam, cast, func, select

from baobab.runtime.agents.tables import agents as rows
from baobab.storage.sql.database import Execute, Unit
from baobab.tools.agents.errors import AgentNotFound
from baobab.tools.agents.schemas.agents import Agent, Name, agent_of
from baobab.tools.core import OMITTED, AppId, Call
from baobab.tools.core.auth.deciders import Approvers
from baobab.tools.core.limits.plan_room import require_room

# Arguments that name the agent and are not settings of it.
_NOT_COLUMNS = frozenset(["call", "app_id", "name"])
# Built once: every call of an agent asks this.
_FIND_AGENT = select(rows).where(
    rows.c.app_id == bindparam("app"), rows.c.name == bindparam("agent"), rows.c.deleted_at.is_(None)
)
_PRIVATE_DEDUPE_SECONDS = 60
_BY_VISIBILITY = -1
"""In place of a dedupe window: the agent has the default of its visibility, also if that changes."""
_COLUMN_NAMES = {"daily_budget_usd": "daily_budget", "dedupe_window_seconds": "dedupe_window"}


async def get_agent_row(call: Call, app_id: str, name: str) -> Any:
    """Returns the row of an app's agent, read in the database of the app's region. Raises AgentNotFound."""
    return await load_agent_row(call.read, app_id, name)


async def load_agent_row(execute: Execute, app_id: str, name: str) -> Any:
    """Returns the row of an app's agent, as a transaction sees it. Raises AgentNotFound."""
    rows_found = (await execute(_FIND_AGENT, {"app": app_id, "agent": name})).all()
    if not rows_found:
        raise AgentNotFound(f"There is no agent `{name}`.")
    return rows_found[0]


async def agent_meaning(call: Call, app_id: AppId, name: Name, **_: Any) -> str:
    """Returns a digest of the agent's present state, which an approval of a call that names the agent is bound to."""
    row = await get_agent_row(call, app_id, name)
    names = ("id", "graph_spec", "default_model", "visibility", "status", "taint_checks", "approvers")
    text = json.dumps([getattr(row, column) for column in names], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def dedupe_seconds(agent: Any) -> int:
    """Returns for how long a start of an agent repeats an equal earlier one: if it does not say so itself, a minute for
    a private agent, and not at all for others, where the second message of a chat must not be refused.
    """
    if agent.dedupe_window != _BY_VISIBILITY:
        return int(agent.dedupe_window)
    return _PRIVATE_DEDUPE_SECONDS if agent.visibility == "private" else 0


def render_agent(row: Any) -> Agent:
    return agent_of(row, dedupe_seconds(row))


def agent_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of an agent by column. fields: the arguments of a call, some of which may be left out."""
    new_fields = {field: value for field, value in fields.items() if field not in _NOT_COLUMNS and value is not OMITTED}
    if isinstance(new_fields.get("approvers"), str | BaseModel):
        new_fields["approvers"] = Approvers.parse(new_fields["approvers"]).as_column
    if "dedupe_window_seconds" in new_fields and new_fields["dedupe_window_seconds"] is None:
        new_fields["dedupe_window_seconds"] = _BY_VISIBILITY
    return {_COLUMN_NAMES.get(field, field): value for field, value in new_fields.items()}


async def require_agent_room(call: Call, unit: Unit, graph: Mapping[str, Any], beside: str = "") -> None:
    """Raises PlanLimitReached if the plan has no room for the graph. beside: the agent whose graph it replaces."""
    plan = call.require_app().plan
    if plan.agents is None and plan.agent_bytes is None:
        return
    size = func.coalesce(func.sum(func.length(cast(rows.c.graph_spec, LongText))), 0)
    conditions = (rows.c.app_id == call.require_app().id, rows.c.deleted_at.is_(None), rows.c.id != beside)
    totals: Any = (
        await unit.execute(select(func.count().label("agents"), size.label("bytes")).where(*conditions))
    ).one()
    require_room("agents of an app", plan, plan.agents, totals.agents)
    require_room("bytes of an app's graphs", plan, plan.agent_bytes, totals.bytes, len(json.dumps(graph)))
