"""/actions/{action_id}/changes: what an action changed, and /snapshots/{day}/restore-preview: what lies between."""

from datetime import date
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import func, select

from baobab.storage.tables import metadata
from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Mcp
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, organisation_of
from baobab.tools.substrate.errors import ActionNotFound, SnapshotNotFound
from baobab.tools.substrate.rows import encode_row
from baobab.tools.substrate.schemas import ActionChange, ActionChanges, RestorePreview
from baobab.tools.substrate.tools.actions import ActionId
from baobab.tools.substrate.toolset import substrate

_MOST = 500
_HIDDEN = frozenset(("search_name", "organisation_id"))
_UNDONE_AT_ONCE = 200
_changes, _actions, _snapshots = tables.changes.c, tables.action_ledger.c, tables.snapshots.c


@substrate.tool(
    "GET /actions/{action_id}/changes",
    access=CALLERS,
    effect="read",
    raises=(ActionNotFound,),
    taints=True,
    mcp=Mcp(
        for_linked_apps=True, keywords="what an action changed, before and after, diff; vorher nachher; antes y después"
    ),
)
async def substrate_action_changes(call: Call, action_id: ActionId) -> ActionChanges:
    """Show the rows that an action changed, as they were before it and after it, at most 500."""
    ours = _changes.organisation_id == organisation_of(call)
    query = select(_actions.id).where(_actions.organisation_id == organisation_of(call), _actions.id == action_id)
    if (await call.execute(query)).first() is None:
        raise ActionNotFound
    made = select(tables.changes).where(ours, _changes.action_id == action_id, tables.CAN_BE_UNDONE)
    # By a sum, since SQLite would look for the action among all changes in their order.
    rows = (await call.execute(made.order_by(_changes.seq + 0).limit(_MOST))).all()
    # What a row was after the change is what it was before the next one, or what it is now.
    later = select(_changes.row_id, _changes.seq, _changes.op, _changes.before).where(
        ours, _changes.row_id.in_([row.row_id for row in rows]), tables.CAN_BE_UNDONE
    )
    following: dict[str, list[Any]] = {}
    for row in sorted(await call.execute(later), key=lambda row: row.seq) if rows else ():
        following.setdefault(row.row_id, []).append(row)
    present = await _read_present(call, rows)
    shown: list[ActionChange] = []
    for row in rows:
        after = next((each for each in following[row.row_id] if each.seq > row.seq), None)
        state = present.get(row.row_id) if after is None else after.before
        shown.append(
            {"table": row.tbl, "id": row.row_id, "op": row.op, "before": _show(row.before), "after": _show(state)}
        )
    return {"changes": shown}


async def _read_present(call: Call, rows: Any) -> dict[str, Any]:
    present: dict[str, Any] = {}
    for name in {row.tbl for row in rows}:
        table = metadata.tables[tables.PREFIX + name]
        ids = [row.row_id for row in rows if row.tbl == name]
        query = select(table).where(table.c.organisation_id == organisation_of(call), table.c.id.in_(ids))
        present |= {row["id"]: encode_row(table, dict(row)) for row in (await call.execute(query)).mappings()}
    return present


def _show(row: Any) -> Any:
    return None if row is None else {name: value for name, value in row.items() if name not in _HIDDEN}


@substrate.tool(
    "GET /snapshots/{day}/restore-preview",
    access=CALLERS,
    effect="read",
    raises=(SnapshotNotFound,),
    mcp=Mcp(
        keywords="what would going back to a day undo, restore, roll back; zurücksetzen auf einen Tag; volver a un día"
    ),
)
async def substrate_restore_preview(
    call: Call, day: Annotated[date, Field(strict=False, description="The day of the snapshot.")]
) -> RestorePreview:
    """Show what going back to the snapshot of a day would undo. Nothing is changed.

    `payloads` are those of bulk_revert_actions, the latest actions first: propose them in their order.
    """
    organisation_id = organisation_of(call)
    query = select(_snapshots.created_at, _snapshots.counts).where(
        _snapshots.organisation_id == organisation_id, _snapshots.snapshot_date == day
    )
    snapshot = (await call.execute(query)).first()
    if snapshot is None:
        raise SnapshotNotFound
    since = (
        _actions.organisation_id == organisation_id,
        _actions.status == "executed",
        _actions.executed_at > snapshot.created_at,
    )
    undone = select(_actions.id, _actions.capability).where(*since, _actions.reversible.is_(True))
    rows = (await call.execute(undone.order_by(_actions.executed_at.desc()).limit(_MOST * 2 + 1))).all()
    staying = select(_actions.capability, func.count()).where(
        *since, _actions.reversible.is_(False), _actions.capability.not_in(("revert_action", "bulk_revert_actions"))
    )
    stays = {row[0]: row[1] for row in (await call.execute(staying.group_by(_actions.capability))).all()}
    ids = [row.id for row in rows[: _MOST * 2]]
    by_capability: dict[str, int] = {}
    for row in rows[: _MOST * 2]:
        by_capability[row.capability] = by_capability.get(row.capability, 0) + 1
    return {
        "snapshot_date": day,
        "taken_at": snapshot.created_at,
        "counts": snapshot.counts,
        "would_undo": by_capability,
        "would_stay": stays,
        "has_more": len(rows) > _MOST * 2,
        "payloads": [
            {
                "action_ids": ids[start : start + _UNDONE_AT_ONCE],
                "reason": f"Back to {day.isoformat()}.",
                "cascade": True,
            }
            for start in range(0, len(ids), _UNDONE_AT_ONCE)
        ],
    }
