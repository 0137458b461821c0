"""Names the agents whose graphs use the tables and columns that a change of the schema takes away."""

from collections.abc import Collection, Mapping

from sqlalchemy import select

from baobab.runtime.agents.spec.spec import GraphSpec
from baobab.runtime.agents.spec.table_uses import TableUse, list_table_uses
from baobab.runtime.agents.tables import agents
from baobab.tools.core import Call
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.data.schema.catalogue import Catalogue

_MOST = 20


async def list_broken_agents(call: Call, before: Catalogue, after: Catalogue) -> list[str]:
    """Returns a warning for each node of an agent's graph that uses what `before` has and `after` has not: dropped or
    under another name.
    """
    lost_columns = {
        name: table.columns.keys() - (after.tables[name].columns.keys() if name in after.tables else ())
        for name, table in before.tables.items()
    }
    if not any(lost_columns.values()):
        return []
    query = select(agents.c.name, agents.c.graph_spec).where(
        agents.c.app_id == call.require_app().id, agents.c.deleted_at.is_(None)
    )
    async with call.reading() as execute:
        rows = (await execute(query.order_by(agents.c.name))).all()
    warnings = [
        f"The agent {row.name} (node {escape_name(use.node_id)}) {problem}"
        for row in rows
        for use in list_table_uses(GraphSpec.model_validate(row.graph_spec), call.registry)
        if (problem := _find_problem(use, lost_columns, after)) is not None
    ]
    if len(warnings) > _MOST:
        warnings[_MOST:] = [f"{len(warnings) - _MOST} more nodes of agents use what this takes away."]
    return warnings


def _find_problem(use: TableUse, lost_columns: Mapping[str, Collection[str]], after: Catalogue) -> str | None:
    """Returns what is wrong with a use from now on; None if it is as right as before."""
    lost_names = lost_columns.get(use.table)
    if not lost_names:
        return None
    remedy = "its calls are refused until you change the graph with agents_update."
    if use.table not in after.tables:
        return f"uses `{use.table}`, which this takes away: {remedy}"
    names = sorted({name for _, name in use.columns if name in lost_names})
    if names:
        return f"uses {', '.join(f'`{use.table}.{name}`' for name in names)}, which this takes away: {remedy}"
    if not use.is_open:
        return None
    lost_list = ", ".join(f"`{name}`" for name in sorted(lost_names))
    return f"writes columns of `{use.table}` that only its runs name. If {lost_list} is among them, {remedy}"
