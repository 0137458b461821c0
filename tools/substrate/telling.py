"""Tells the triggers of apps that are linked to a substrate what has changed in it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from baobab.storage.sql.database import Unit
from baobab.tools.core import Services
from baobab.tools.core.auth.tables import apps
from baobab.tools.substrate.tables import STREAMED, action_ledger
from baobab.tools.substrate.toolset import MEMORY_CHANGED

_MOST_TOLD = 100
"""So many changed rows are named in one event; it counts the others."""
_RUN = "run:"
_actions = action_ledger.c


async def tell_apps(unit: Unit, services: Services, organisation_id: str, changes: Sequence[Mapping[str, Any]]) -> None:
    """Emits one event for all that a transaction has changed, to each linked app in which a trigger waits for it.

    changes: the rows of `substrate_changes`. Events name rows, and do not tell what is in them.
    """
    rows = [change for change in changes if change["tbl"] in STREAMED]
    if not rows:
        return
    query = select(apps.c.id).where(apps.c.substrate_organization_id == organisation_id).order_by(apps.c.id)
    app_ids = [
        app_id
        for app_id in (await unit.execute(query)).scalars().all()
        if await services.subscriptions.waits_for(app_id, MEMORY_CHANGED, unit)
    ]
    if not app_ids:
        return
    origin = await _find_origin(unit, organisation_id, [row["action_id"] for row in rows if row["action_id"]])
    data = {
        "organization_id": organisation_id,
        "tables": sorted({row["tbl"] for row in rows}),
        "changes": [{"table": row["tbl"], "change": row["op"], "id": row["row_id"]} for row in rows[:_MOST_TOLD]],
        "count": len(rows),
    }
    for app_id in app_ids:
        await services.jobs.emit(unit, MEMORY_CHANGED, app_id=app_id, data=data, origin=origin, only_awaited=True)


async def _find_origin(unit: Unit, organisation_id: str, action_ids: Sequence[str]) -> dict[str, Any]:
    """Returns who has caused changes, by the actions that made them."""
    is_action = (_actions.organisation_id == organisation_id, _actions.id.in_(list(dict.fromkeys(action_ids))[:500]))
    actions = (await unit.execute(select(_actions.proposed_by, _actions.from_strangers).where(*is_action))).all()
    run_ids = [row.proposed_by.removeprefix(_RUN) for row in actions if (row.proposed_by or "").startswith(_RUN)]
    # Changes without an action are those of a person who undoes or forgets, or of an import.
    return {
        "run_id": run_ids[0] if run_ids else None,
        "outside": any(row.from_strangers for row in actions) or len(set(action_ids)) != len(actions),
    }
