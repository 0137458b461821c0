"""/v1/{app_id}/changes: what was written, by whom, and how to undo it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Unpack

from pydantic import Field
from pydantic_core import to_json

from baobab.storage.sql.statements import Statements
from baobab.tools.core import AppId, AppOwner, Audit, BadRequest, Call, Guard, Rest, Text
from baobab.tools.core.list_totals import MOST_COUNTED
from baobab.tools.core.listing import Listing
from baobab.tools.data.actor import SERVICE
from baobab.tools.data.errors import (
    ActionNotFound,
    ForeignKeyViolation,
    InvalidExpression,
    InvalidSchema,
    MigrationFailed,
    UndoConflict,
    UndoImpossible,
    UniqueViolation,
    UnknownTable,
)
from baobab.tools.data.expressions.compiler import load_parser
from baobab.tools.data.fields import KEY_HEADER, UNDO, TableName
from baobab.tools.data.history.change_log import SCHEMA, Change, ChangeLog, LogReader, find_author
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.migration.agent_uses import list_broken_agents
from baobab.tools.data.migration.changes import change_catalogue, try_policies, try_views
from baobab.tools.data.migration.schema_log import SchemaLog
from baobab.tools.data.rows.attempts import read_attempt
from baobab.tools.data.rows.row_security import lower_guard
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import find_catalogue, format_moment, write_rows
from baobab.tools.data.rows.undo import UndoPlan, plan_undo, undo
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schemas import ChangeRow, Changes, RepeatOptions, Undone
from baobab.tools.data.toolset import data

_MOST_BYTES = 2**20
"""The most bytes of rows in one list of changes."""

ActionId = Annotated[
    str, Text(19, pattern=r"^[1-9][0-9]{0,17}$"), Field(description="The id of a write.", examples=["17"])
]
RunId = Annotated[str, Text(100, min_length=1), Field(description="The id of a run of an agent.")]


@data.tool(
    "GET /data-changes",
    access=AppOwner(),
    effect="read",
    listing=Listing("changes", continues=("before", "id")),
    taints=True,
)
async def data_changes(
    call: Call,
    app_id: AppId,
    table: TableName | None = None,
    run_id: RunId | None = None,
    before: Annotated[int, Field(ge=1, le=2**62)] | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> Changes:
    """List what was written to tables, latest first: each row before and after, by whom, and by which action.

    table: only its changes; null for all tables.
    run_id: only what a run wrote; null for everything.
    before: only changes with a smaller id, for the next page; null for the latest.
    limit: the most changes; fewer if their rows are large.
    """
    store = call.stores.data
    if not (await find_catalogue(call)).version:
        return {"changes": []}

    counts = call.context.counts_lists

    def read(statements: Statements) -> tuple[list[Change], int]:
        log = LogReader(statements, store, app_id)
        page = log.read_latest(limit, table=table, run_id=run_id, before=before)
        is_counted = counts and (before is not None or len(page) == limit)
        return page, log.count(MOST_COUNTED + 1, table=table, run_id=run_id) if is_counted else len(page)

    changes: list[ChangeRow] = []
    size = 0
    page, count = await store.read(app_id, read, call.unit)
    if counts:
        call.count_list(count, is_exact=count <= MOST_COUNTED)
    for change in page:
        row = _show(change)
        size += len(to_json(row))
        if changes and size > _MOST_BYTES:
            if not counts:
                call.count_list(len(changes) + 1, is_exact=False)
            break
        changes.append(row)
    return {"changes": changes}


def _show(change: Change) -> ChangeRow:
    return {
        "id": change.id,
        "action_id": str(change.action),
        "table": change.table,
        "op": change.op,
        "before": None if change.table == SCHEMA else change.old_row,
        "after": change.new_row,
        "at": change.at,
        "role": change.role,
        "user_id": change.user_id,
        "actor_id": change.actor_id,
        "run_id": change.run_id,
        "tool": change.tool,
    }


async def _preview_undo(
    call: Call, app_id: AppId, action_id: str | None, run_id: str | None, cascade: bool, **_: Unpack[RepeatOptions]
) -> str:
    if not (await find_catalogue(call)).version:
        raise ActionNotFound("There is no such change of rows.")
    store, oldest = call.stores.data, _find_oldest(call)
    number = _require_one(action_id, run_id)
    if (schema_change := await _find_schema_change(call, number)) is not None:
        return f"It would take back: {'; '.join((schema_change.new_row or {})['changes'])[:3000]}."

    def look(statements: Statements) -> UndoPlan:
        return plan_undo(LogReader(statements, store, app_id), number, run_id, cascade=cascade, oldest=oldest)

    plan = await store.read(app_id, look, call.unit)
    summary = to_json(plan.describe()).decode()[:3000]
    return f"It would take {len(plan.changes)} changes of rows back, of {len(plan.actions)} actions: {summary}"


@data.tool(
    "POST /data-changes/undo",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(ActionNotFound, UndoConflict, UndoImpossible, UniqueViolation, ForeignKeyViolation),
    audit=Audit("data.undo", category="data", resource="action"),
    guard=Guard(
        preview=_preview_undo,
        undone_by=UNDO,
        consequence="Rows become what they were before; undoing this undo brings back what they are now.",
    ),
    rest=Rest(query=("idempotency_key",), from_headers=KEY_HEADER, examples={"action_id": "17"}),
)
async def data_undo(
    call: Call,
    app_id: AppId,
    action_id: ActionId | None = None,
    run_id: RunId | None = None,
    cascade: bool = False,
    **options: Unpack[RepeatOptions],
) -> Undone:
    """Undo a write of rows, all writes of a run, or a schema_apply that dropped or renamed something: the rows, tables
    and columns become what they were before.

    It is refused where a later write to the same rows would be lost. It is itself a write, and can be undone.

    action_id: the `action_id` that the write answered, or that data_changes shows; null with run_id.
    run_id: the id of the run; null with action_id.
    cascade: undo later writes to the same rows too, as a whole.
    """
    number, oldest, store = _require_one(action_id, run_id), _find_oldest(call), call.stores.data
    if (schema_change := await _find_schema_change(call, number)) is not None:
        return await _undo_schema(call, schema_change)

    def write(rows: Rows, catalogue: Catalogue) -> Undone:
        if not catalogue.version:
            raise ActionNotFound("There is no such change of rows.")
        reader = LogReader(rows.statements, store, app_id)
        plan = plan_undo(reader, number, run_id, cascade=cascade, oldest=oldest)
        count = undo(rows, catalogue, plan, cascade=cascade)
        return {"undone": count, "actions": [str(each) for each in sorted(plan.actions)]}

    attempt = read_attempt(call, SERVICE, options, [action_id, run_id, cascade])
    result = await write_rows(call, SERVICE, write, attempt)
    call.audit.resource_id = result["actions"][0]
    return result


async def _find_schema_change(call: Call, number: int | None) -> Change | None:
    """Returns the change of the schema that has this number; None if it is a write of rows, or is gone."""
    app_id, store = call.require_app().id, call.stores.data
    if number is None or not (await find_catalogue(call)).version:
        return None

    def read(statements: Statements) -> list[Change]:
        return LogReader(statements, store, app_id).read_action(number, 1)

    changes = await store.read(app_id, read, call.unit)
    return changes[0] if changes and changes[0].table == SCHEMA else None


async def _undo_schema(call: Call, change: Change) -> Undone:
    """Brings back what a change of the schema dropped, or the names that it changed."""
    app_id, store, options = call.require_app().id, call.stores.data, call.services.options
    now, token, parser = format_moment(call), call.services.ids.hex(12), await load_parser()
    steps: list[str] = []
    warnings: list[str] = []
    older_catalogue = await find_catalogue(call)

    def restore(statements: Statements, current: Catalogue) -> Catalogue:
        nonlocal older_catalogue
        older_catalogue = current
        _require_undoable(LogReader(statements, store, app_id).read_action(change.id, 1), change, _find_oldest(call))
        lower_guard(statements, store, app_id)
        sequences = Sequences(statements, store, app_id)
        log = ChangeLog(statements, store, app_id, sequences, find_author(call, SERVICE), now, options.undo_bytes)
        schema_log = SchemaLog(statements, store, app_id, log, token, options.undo_bytes)
        catalogue, steps[:], warnings[:] = schema_log.restore(current, change, now, parser)
        sequences.write()
        try_policies(call, statements, catalogue)
        try_views(call, statements, catalogue)
        return replace(catalogue, guard=None)

    try:
        restored_catalogue = await change_catalogue(call, restore)
    except (InvalidSchema, InvalidExpression, UnknownTable, MigrationFailed) as exc:
        raise UndoConflict(
            f"The schema has changed since: {exc.message}",
            remediation="op:data_changes with `table: _schema` lists the later changes: undo those first.",
        ) from exc
    call.audit.resource_id = str(change.id)
    warnings += await list_broken_agents(call, older_catalogue, restored_catalogue)
    answer: Undone = {
        "undone": len(steps),
        "actions": [str(change.id)],
        "message": f"Taken back: {'; '.join(steps)}."[:4000],
    }
    return {**answer, "warnings": warnings} if warnings else answer


def _require_undoable(present: Sequence[Change], change: Change, oldest: str) -> None:
    if not present or present[0].at < oldest:
        raise ActionNotFound(f"The log does not hold the action {change.id} any more.")
    if present[0].undone_by is not None:
        raise UndoConflict(
            f"The action {change.id} is undone already, by the action {present[0].undone_by}.",
            remediation="There is nothing to do.",
        )
    if present[0].old_row is None:
        raise UndoImpossible(
            f"The action {change.id} cannot be taken back: it brought back what was dropped, or dropped what could not "
            "be kept.",
            remediation="Change the schema with op:schema_apply instead.",
        )


def _require_one(action_id: str | None, run_id: str | None) -> int | None:
    if (action_id is None) == (run_id is None):
        raise BadRequest("Name either the action or the run to undo.")
    return None if action_id is None else int(action_id)


def _find_oldest(call: Call) -> Any:
    return (call.now - timedelta(days=call.services.options.undo_days)).isoformat()
