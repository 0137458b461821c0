"""Undoes the writes of a call or a run: the rows become what they were, unless a later write would be lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from baobab.tools.core import BaobabError
from baobab.tools.data.errors import ActionNotFound, UndoConflict, UndoImpossible
from baobab.tools.data.history.change_log import MOST_CHANGES, SCHEMA, Change, LogReader
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.schemas import Row

UNDO = "data_undo"
_SHOWN = 20
_AT_ONCE = 200
"""Rows with a key of several columns that one statement deletes: SQLite takes no condition of more than 1000 levels."""


@dataclass(slots=True)
class UndoPlan:
    """The changes to undo, oldest first, and the actions that they belong to."""

    changes: list[Change] = field(default_factory=list)
    actions: set[int] = field(default_factory=set)

    def describe(self) -> list[dict[str, Any]]:
        """Describes what would become of the rows: their values after the changes, and before them."""
        return [
            {"table": change.table, "before": change.new_row, "after": change.old_row}
            for change in reversed(self.changes[-_SHOWN:])
        ]


def plan_undo(reader: LogReader, action: int | None, run_id: str | None, *, cascade: bool, oldest: str) -> UndoPlan:
    """Finds the changes of an action or a run. Raises ActionNotFound, UndoConflict or UndoImpossible.

    cascade: whether to undo later changes of the same rows too, with the whole actions that they belong to. oldest: the
    moment before which nothing can be undone any more.
    """
    action_numbers = [] if action is None else [action]
    if run_id is not None:
        changes = reader.read_run(run_id, MOST_CHANGES)
        action_numbers = sorted({change.action for change in changes if change.undone_by is None})
    plan = UndoPlan()
    for number in action_numbers:
        _take(plan, reader, number, oldest)
    if not plan.changes:
        raise ActionNotFound("There is no such change of rows.")
    last = 0
    while True:
        later_actions = _find_later(plan, reader)
        if not later_actions:
            return plan
        if not cascade or len(plan.actions) == last:
            raise UndoConflict(
                f"{len(later_actions)} later actions changed the same rows, and would be lost.",
                details={"later_actions": [str(number) for number in sorted(later_actions)[:100]]},
            )
        last = len(plan.actions)
        for number in later_actions:
            _take(plan, reader, number, oldest)


def _take(plan: UndoPlan, reader: LogReader, action: int, oldest: str) -> None:
    changes = reader.read_action(action, MOST_CHANGES)
    if not changes or changes[0].id != action or changes[0].at < oldest:
        raise ActionNotFound(f"The log does not hold the whole action {action}.")
    if changes[0].undone_by is not None:
        raise UndoConflict(
            f"The action {action} is undone already, by the action {changes[0].undone_by}.",
            remediation="Undo that action to restore the rows.",
        )
    if len(plan.changes) + len(changes) > MOST_CHANGES:
        raise UndoImpossible(f"More than {MOST_CHANGES} changes would be undone.", details={"limit": MOST_CHANGES})
    if changes[0].table == SCHEMA:
        raise UndoImpossible(
            f"The action {action} changed the schema.", remediation="Undo it by its own `action_id` first."
        )
    if any(change.old_row is None and change.new_row is None for change in changes):
        raise UndoImpossible(f"The action {action} changed more rows than the log keeps.")
    if any(not change.keys for change in changes):
        raise UndoImpossible(f"The action {action} changed rows without a key, which cannot be told apart.")
    plan.changes = sorted([*plan.changes, *changes], key=lambda change: change.id)
    plan.actions.add(action)


def _find_later(plan: UndoPlan, reader: LogReader) -> set[int]:
    """Returns the later actions that changed the same rows and are not part of the plan.

    A change that was undone does not count, and neither does the undo itself.
    """
    first: dict[tuple[str, str], int] = {}
    for change in plan.changes:
        for key in change.keys:
            first.setdefault(key, change.id)
    later_actions: set[int] = set()
    for change in reader.iterate_after(plan.changes[0].id - 1):
        is_live = change.undone_by is None and change.tool != UNDO
        if (
            is_live
            and change.action not in plan.actions
            and any(first.get(key, change.id) < change.id for key in change.keys)
        ):
            later_actions.add(change.action)
    return later_actions


def undo(rows: Rows, catalogue: Catalogue, plan: UndoPlan, *, cascade: bool) -> int:
    """Restores the rows, and returns how many changes were undone.

    cascade: whether to do so even if rows that refer to them and were written later are deleted or changed along.
    """
    # Rows of one table that one action wrote may refer to each other, so they go, or come back, in one statement.
    for (op, _), group in groupby(reversed(plan.changes), key=lambda change: (change.op, change.table)):
        changes = list(group)
        if op == "DELETE":
            _insert_again(rows, catalogue, changes)
        elif op == "INSERT":
            _delete_inserted(rows, catalogue, changes, cascade=cascade)
        else:
            for change in changes:
                _restore_values(rows, catalogue, change)
    rows.note_undone(plan.changes)
    return len(plan.changes)


def _insert_again(rows: Rows, catalogue: Catalogue, changes: Sequence[Change]) -> None:
    table = _find_table(catalogue, changes[0])
    rows.insert(table, [_known_columns(table, change.old_row) for change in reversed(changes)])


def _delete_inserted(rows: Rows, catalogue: Catalogue, changes: Sequence[Change], *, cascade: bool) -> None:
    table = _find_table(catalogue, changes[0])
    keys = [_key_of(_find_table(catalogue, change), change.new_row) for change in changes]
    if len(table.key) == 1:
        # Each key is `["and", ["=", column, value]]`.
        deletions = [(["in", keys[0][1][1], [key[1][2] for key in keys]], len(keys))]
    else:
        chunks = [keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE)]
        deletions = [(["or", *chunk], len(chunk)) for chunk in chunks]
    for condition, count in deletions:
        # Other rows of the plan are gone already, because undo goes backwards.
        if not cascade and rows.has_followers(table, condition):
            raise UndoConflict(f"Later rows refer to a row of `{table.name}`, and would go or change with it.")
        if len(rows.delete(table, [condition])) < count:
            raise UndoConflict(f"A row of `{table.name}` has changed since the action.")


def _restore_values(rows: Rows, catalogue: Catalogue, change: Change) -> None:
    table = _find_table(catalogue, change)
    old_row, new_row = change.old_row or {}, change.new_row or {}
    old_values = {name: value for name, value in old_row.items() if value != new_row.get(name, value)}
    restored_values = _known_columns(table, old_values)
    changed_rows = (
        rows.update(table, restored_values, [_key_of(table, new_row)], restores=True) if restored_values else [{}]
    )
    # It may have been restored together with the row that it refers to.
    changed_rows = changed_rows or rows.update(table, restored_values, [_key_of(table, old_row)], restores=True)
    if not changed_rows:
        raise UndoConflict(f"A row of `{table.name}` has changed since the action.")


def _find_table(catalogue: Catalogue, change: Change) -> TableInfo:
    table = catalogue.tables.get(change.table)
    row = change.old_row or change.new_row or {}
    if table is None or not table.key or not set(table.key) <= row.keys():
        raise UndoImpossible(
            f"The table `{change.table.removesuffix(' (dropped)')}` has been dropped, or has another key now.",
            remediation="op:data_changes with `table: _schema` lists the changes of the schema: undo the one that "
            "dropped it first.",
        )
    return table


def _known_columns(table: TableInfo, row: Row | None) -> Row:
    """Returns the values whose columns still exist. A dropped column stays dropped."""
    return {name: value for name, value in (row or {}).items() if name in table.columns}


def _key_of(table: TableInfo, row: Row | None) -> Expression:
    parts: list[Expression] = []
    for name in table.key:
        kind = table.columns[name].type
        try:
            value = kind.clean((row or {})[name], name)
        except BaobabError as exc:
            raise UndoImpossible(f"The key of `{table.name}` is of another type now.") from exc
        parts.append(["=", ["column", "", name], ["value", kind.name, value]])
    return ["and", *parts]
