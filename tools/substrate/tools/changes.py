"""/actions/{action_id}/changes: what an action changed, and /snapshots/{day}/restore-preview: what lies between."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Select, bindparam, func, select, union_all

from baobab.storage.sql.database import mark_long
from baobab.storage.sql.tables import metadata
from baobab.tools.core import Call, Mcp
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, organisation_of
from baobab.tools.substrate.capabilities.capability import CAPABILITIES
from baobab.tools.substrate.capabilities.reverts import UNDOING
from baobab.tools.substrate.errors import ActionNotFound, SnapshotNotFound
from baobab.tools.substrate.importing import CAPABILITY as IMPORTING
from baobab.tools.substrate.rows import encode_row
from baobab.tools.substrate.schemas import ActionChange, ActionChanges, RestorePreview
from baobab.tools.substrate.tools.actions import ActionId
from baobab.tools.substrate.toolset import substrate

_MOST = 500
_HIDDEN = frozenset(("search_name", "organisation_id"))
_UNDONE_AT_ONCE = 200
_MOST_UNDONE = 1000
_MOST_COUNTED = 10_000
"""Actions of one capability of which a preview counts those that cannot be undone."""
_changes, _actions, _snapshots = tables.changes.c, tables.action_ledger.c, tables.snapshots.c
_SINCE = (_actions.organisation_id == bindparam("of_organisation"), _actions.executed_at > bindparam("since"))


@substrate.tool(
    "GET /actions/{action_id}/changes",
    access=CALLERS,
    effect="read",
    raises=(ActionNotFound,),
    taints=True,
    mcp=Mcp(for_linked_apps=True),
)
async def substrate_action_changes(call: Call, action_id: ActionId) -> ActionChanges:
    """Show the rows that an action changed, as they were before it and after it, at most 500."""
    in_organisation = _changes.organisation_id == organisation_of(call)
    query = select(_actions.id).where(_actions.organisation_id == organisation_of(call), _actions.id == action_id)
    if (await call.execute(query)).first() is None:
        raise ActionNotFound
    changes_of_action = select(tables.changes).where(
        in_organisation, _changes.action_id == action_id, tables.CAN_BE_UNDONE
    )
    # By a sum, since SQLite would look for the action among all changes in their order.
    rows = (await call.execute(changes_of_action.order_by(_changes.seq + 0).limit(_MOST))).all()
    # The state after a change is the state before the next change of the row, or the present one.
    following = await _find_following(call, rows)
    changed_again = (in_organisation, _changes.seq.in_(following.values()))
    images = await call.execute(select(_changes.seq, _changes.before).where(*changed_again))
    states = {image.seq: image.before for image in images}
    present = await _read_present(call, rows)
    shown_changes: list[ActionChange] = []
    for row in rows:
        state = states[following[row.seq]] if row.seq in following else present.get(row.row_id)
        shown_changes.append(
            {"table": row.tbl, "id": row.row_id, "op": row.op, "before": _show(row.before), "after": _show(state)}
        )
    return {"changes": shown_changes}


async def _find_following(call: Call, rows: Sequence[Any]) -> dict[int, int]:
    """Returns, by the number of each change, the number of the next change of the same row, if there is one. A row may
    have been changed many thousand times, so what it was each time is not read.
    """
    if not rows:
        return {}
    query = select(_changes.row_id, _changes.seq).where(
        _changes.organisation_id == organisation_of(call),
        _changes.row_id.in_([row.row_id for row in rows]),
        _changes.seq > min(row.seq for row in rows),
        tables.CAN_BE_UNDONE,
    )
    numbers: dict[str, list[int]] = {}
    for change in await call.execute(mark_long(query)):
        numbers.setdefault(change.row_id, []).append(change.seq)
    next_numbers = {
        row.seq: min((each for each in numbers.get(row.row_id, ()) if each > row.seq), default=None) for row in rows
    }
    return {number: following for number, following in next_numbers.items() if following is not None}


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
)
async def substrate_restore_preview(
    call: Call, day: Annotated[date, Field(strict=False, description="The day of the snapshot.")]
) -> RestorePreview:
    """Show what a return to the snapshot of a day would undo. Nothing is changed.

    `payloads` are those of bulk_revert_actions, the latest actions first: propose them in their order. They hold at
    most 1000 actions; if there are more, `has_more` is true, and once these are undone a new preview shows the next.
    `would_stay` counts among the latest 10 000 actions of each capability.
    """
    organisation_id = organisation_of(call)
    query = select(_snapshots.created_at, _snapshots.counts).where(
        _snapshots.organisation_id == organisation_id, _snapshots.snapshot_date == day
    )
    snapshot = (await call.execute(query)).first()
    if snapshot is None:
        raise SnapshotNotFound
    parameters = {"of_organisation": organisation_id, "since": snapshot.created_at}
    rows = (await call.execute(mark_long(_build_undone()), parameters)).all()
    staying_counts = {row[0]: row[1] for row in await call.execute(mark_long(_build_staying()), parameters)}
    ids = [row.id for row in rows[:_MOST_UNDONE]]
    by_capability: dict[str, int] = {}
    for row in rows[:_MOST_UNDONE]:
        by_capability[row.capability] = by_capability.get(row.capability, 0) + 1
    return {
        "snapshot_date": day,
        "taken_at": snapshot.created_at,
        "counts": snapshot.counts,
        "would_undo": by_capability,
        "would_stay": staying_counts,
        "has_more": len(rows) > _MOST_UNDONE,
        "payloads": [
            {
                "action_ids": ids[start : start + _UNDONE_AT_ONCE],
                "reason": f"Back to {day.isoformat()}.",
                "cascade": True,
            }
            for start in range(0, len(ids), _UNDONE_AT_ONCE)
        ],
    }


# One query for each capability, put together: by capability, an index has the actions in the order in which they were
# executed. Without it, the database would sort all actions of the organisation.
def _build_undone() -> Any:
    """Builds a query of the actions since a moment that can be undone, the latest first, and one more than is shown."""
    conditions = (*_SINCE, _actions.status == "executed", _actions.reversible.is_(True))
    latest = select(_actions.id, _actions.capability, _actions.executed_at).where(*conditions)
    names = [name for name, capability in CAPABILITIES.items() if capability.is_reversible]
    executed_actions = _read_each_capability(latest, _MOST_UNDONE + 1, [*names, IMPORTING])
    return (
        select(executed_actions.c.id, executed_actions.c.capability)
        .order_by(executed_actions.c.executed_at.desc())
        .limit(_MOST_UNDONE + 1)
    )


def _build_staying() -> Any:
    """Builds a query that counts, by capability, the actions since a moment that cannot be undone."""
    latest = select(_actions.capability, _actions.status, _actions.reversible).where(*_SINCE)
    executed_actions = _read_each_capability(latest, _MOST_COUNTED, [*(CAPABILITIES.keys() - UNDOING), IMPORTING])
    staying = (executed_actions.c.status == "executed", executed_actions.c.reversible.is_(False))
    return select(executed_actions.c.capability, func.count()).where(*staying).group_by(executed_actions.c.capability)


def _read_each_capability(latest: Select[Any], most: int, capabilities: Sequence[str]) -> Any:
    pieces = [
        select(latest.where(_actions.capability == name).order_by(_actions.executed_at.desc()).limit(most).subquery())
        for name in capabilities
    ]
    return union_all(*pieces).subquery()
