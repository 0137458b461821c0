"""Forgetting on request: the one action that leaves nothing to undo."""

from sqlalchemy import select

from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.capability import ActionContext, Plan, capability, changed_row
from baobab.tools.substrate.capabilities.entities import load_merged
from baobab.tools.substrate.capabilities.schemas import Forget
from baobab.tools.substrate.errors import InvalidPayload, MemoryNotFound
from baobab.tools.substrate.forgetting import find_traces
from baobab.tools.substrate.ledger import Ledger, RowChange

_TABLES = {
    "ent_": tables.entities,
    "dec_": tables.decisions,
    "com_": tables.commitments,
    "lrn_": tables.learnings,
    "art_": tables.source_artifacts,
}
_REFERRING = (tables.decisions, tables.commitments, tables.learnings)


@capability(needs_approval=True)
async def forget(ledger: Ledger, payload: Forget, action: ActionContext) -> Plan:
    """Erase memories and entities for good, with what the ledger keeps of them: as they were before, payloads,
    deliveries, vectors. The result is the receipt.
    """
    ids = list(dict.fromkeys(payload.ids))
    for entity_id in [each for each in ids if each.startswith("ent_")]:
        ids += [row["id"] for row in await load_merged(ledger, entity_id) if row["id"] not in ids]
    ids += [each for each in await _find_consolidated(ledger, ids) if each not in ids]
    changes: list[RowChange] = []
    for prefix, table in _TABLES.items():
        rows = await ledger.load(table, [each for each in ids if each.startswith(prefix)])
        changes += [RowChange(table, row["id"], row, None) for row in rows.values()]
        if any(row.get("constraint_spec") is not None and row["status"] == "active" for row in rows.values()):
            raise InvalidPayload("payload of forget: a principle in force is retired first.")
    if ledger.settings.self_entity_id in ids:
        raise InvalidPayload("payload of forget: the entity of the organisation itself stays.")
    traces = await find_traces(ledger, ids)
    if not changes and not traces.changes:
        raise MemoryNotFound
    plan = Plan(
        {
            "forgotten": ids,
            "rows": len(changes),
            "before_images": len(traces.changes),
            "actions": len(traces.actions),
            "deliveries": len(traces.deliveries),
            "embeddings": traces.vectors,
            "calls": traces.calls,
        },
        changes,
    )
    plan.traces = traces
    deleted_artifacts = [change.id for change in changes if change.table is tables.source_artifacts]
    for table in _REFERRING if deleted_artifacts else ():
        refers_to_deleted = (
            table.c.organisation_id == ledger.organisation_id,
            table.c.source_artifact_id.in_(deleted_artifacts),
        )
        for row in (await ledger.unit.execute(select(table).where(*refers_to_deleted))).mappings():
            if row["id"] not in ids:
                after = changed_row(action, dict(row), source_artifact_id=None)
                plan.changes.append(RowChange(table, row["id"], dict(row), after))
    return plan


async def _find_consolidated(ledger: Ledger, ids: list[str]) -> list[str]:
    """Returns the memories that were consolidated with some of these, since they say the same."""
    changes, actions = tables.changes.c, tables.action_ledger.c
    conditions = (changes.organisation_id == ledger.organisation_id, tables.CAN_BE_UNDONE)
    consolidating = select(actions.id).where(
        actions.organisation_id == ledger.organisation_id, actions.capability == "consolidate_memories"
    )
    query = select(changes.action_id).where(*conditions, changes.row_id.in_(ids), changes.action_id.in_(consolidating))
    with_them = set((await ledger.unit.execute(query)).scalars())
    if not with_them:
        return []
    query = select(changes.row_id).distinct().where(*conditions, changes.action_id.in_(with_them))
    return sorted((await ledger.unit.execute(query)).scalars())
